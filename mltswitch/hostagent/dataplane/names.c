/* Acknowledgements name packets: pieces of the bitmaps of transfers that the peer has heard of lately.
 *
 * A piece is all that has arrived of PIECE_PACKETS packets, and is said in three acknowledgements, so that losing one or
 * two of them costs nothing. Whatever arrives, again or for the first time, has its piece said anew.
 */
#include "internal.h"

enum {
    TIMES = 3,
    SAID_NOW = NAMINGS / 4, /* pieces that nobody has named yet: more do not wait */
};

/* ------------------------------------------------------------------------------------------------------ receiver */

bool names_note(struct transfer *transfer, uint32_t packet)
{
    struct flow *flow = transfer->flow;
    uint32_t piece = packet / PIECE_PACKETS, place = flow->naming_count, fresh = 0;
    while (place && !(flow->namings[place - 1].piece == piece && flow->namings[place - 1].transfer == transfer))
        place--;
    if (place) {
        flow->namings[place - 1].times = TIMES;
        return false;
    }
    if (flow->naming_count == NAMINGS) { /* the one that was said most often, of these the oldest */
        uint32_t worst = 0;
        for (uint32_t each = 1; each < NAMINGS; each++)
            if (flow->namings[each].times < flow->namings[worst].times)
                worst = each;
        for (uint32_t each = worst; each + 1 < NAMINGS; each++)
            flow->namings[each] = flow->namings[each + 1];
        flow->naming_count--;
    }
    flow->namings[flow->naming_count++] = (struct naming){transfer, piece, TIMES};
    for (uint32_t each = 0; each < flow->naming_count; each++)
        fresh += flow->namings[each].times == TIMES;
    return fresh >= SAID_NOW;
}

bool names_are_new(const struct flow *flow)
{
    for (uint32_t each = 0; each < flow->naming_count; each++)
        if (flow->namings[each].times == TIMES)
            return true;
    return false;
}

/* Pieces into an acknowledgement, the new ones first; returns their bytes. */
uint32_t names_put(struct flow *flow, uint8_t *at, uint32_t room)
{
    uint32_t bytes = 0, kept = 0;
    for (uint8_t times = TIMES; times; times--)
        for (uint32_t each = 0; each < flow->naming_count && bytes + PIECE_BYTES <= room; each++) {
            struct naming *naming = &flow->namings[each];
            if (naming->times != times)
                continue;
            const struct transfer *transfer = naming->transfer;
            uint32_t first = naming->piece * (PIECE_PACKETS / 8), whole = (transfer->layout.packets + 63) / 64 * 8;
            uint8_t *piece = at + bytes;
            write32(piece + PIECE_TENSOR_OFFSET, transfer->result.tensor);
            write32(piece + PIECE_ROUND_OFFSET, transfer->result.round);
            write32(piece + PIECE_NUMBER_OFFSET, naming->piece);
            memset(piece + PIECE_BITS_OFFSET, 0, PIECE_PACKETS / 8);
            memcpy(piece + PIECE_BITS_OFFSET, transfer->arrived + first,
                   whole - first < PIECE_PACKETS / 8 ? whole - first : PIECE_PACKETS / 8);
            bytes += PIECE_BYTES;
            naming->times = (uint8_t)(TIMES + times); /* once in a datagram */
        }
    for (uint32_t each = 0; each < flow->naming_count; each++) {
        struct naming naming = flow->namings[each];
        if (naming.times > TIMES)
            naming.times = (uint8_t)(naming.times - TIMES - 1);
        if (naming.times)
            flow->namings[kept++] = naming;
    }
    flow->naming_count = kept;
    return bytes;
}

void names_forget(const struct transfer *transfer)
{
    struct flow *flow = transfer->flow;
    uint32_t kept = 0;
    for (uint32_t each = 0; each < flow->naming_count; each++)
        if (flow->namings[each].transfer != transfer)
            flow->namings[kept++] = flow->namings[each];
    flow->naming_count = kept;
}

/* -------------------------------------------------------------------------------------------------------- sender */

/* Returns false for what cannot be: packets that there are not, with which a piece says nothing, or that never left. */
static bool take_piece(struct transfer *transfer, uint32_t first, const uint8_t *bits)
{
    uint32_t packets = transfer->layout.packets - first < PIECE_PACKETS ? transfer->layout.packets - first : PIECE_PACKETS;
    bool is_sane = true;
    for (uint32_t number = packets; number < PIECE_PACKETS; number++)
        if (bit_is_set(bits, number))
            return false;
    for (uint32_t packet = first; packet < first + packets; packet++) {
        if (!bit_is_set(bits, packet - first) || bit_is_set(transfer->arrived, packet))
            continue;
        if (!transfer->left[packet] && !bit_is_set(transfer->is_lost, packet)) {
            is_sane = false;
            continue;
        }
        bit_set(transfer->arrived, packet);
        transfer->result.arrived_packets++;
        transfer->result.arrived_important += bit_is_set(transfer->important, packet);
        departures_named(transfer, packet);
    }
    return is_sane;
}

bool names_take(struct flow *flow, uint64_t stamp, const uint8_t *at, uint32_t bytes)
{
    bool is_sane = bytes % PIECE_BYTES == 0;
    for (uint32_t rest = bytes / PIECE_BYTES; rest; rest--, at += PIECE_BYTES) {
        const struct entry *entry =
            entry_find(flow, read32(at + PIECE_TENSOR_OFFSET), read32(at + PIECE_ROUND_OFFSET), true);
        struct transfer *transfer = entry ? entry->transfer : NULL;
        uint32_t piece = read32(at + PIECE_NUMBER_OFFSET);
        if (!transfer || transfer->stage == WAITS_FOR_READY || stamp <= transfer->not_before)
            continue; /* over meanwhile, or said of an earlier one */
        if (piece > (transfer->layout.packets - 1) / PIECE_PACKETS)
            is_sane = false;
        else
            is_sane &= take_piece(transfer, piece * PIECE_PACKETS, at + PIECE_BITS_OFFSET);
    }
    return is_sane;
}
