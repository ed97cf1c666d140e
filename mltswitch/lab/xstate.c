/* A preloaded ptrace for user-mode-linux; xstate.py compiles it and says what for. */
typedef unsigned long word;
enum { GETREGSET = 0x4204, SETREGSET = 0x4205, XSTATE = 0x202, LARGEST = 65536, PEEKS = 3 };
/* Offset of XSTATE_BV (Intel SDM 1, 13.4.2), and the components below AMX: x87 ... ZMM, PKRU. */
enum { HEADER = 512, KNOWN = 0x2ff };
struct vector { void *base; word length; };
extern int *__errno_location(void);

static unsigned char whole_state[LARGEST] __attribute__((aligned(64)));
static word whole_length;

static long kernel_ptrace(long request, long pid, void *address, void *data)
{
    register void *fourth __asm__("r10") = data;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(101L), "D"(request), "S"(pid), "d"(address), "r"(fourth)
                     : "rcx", "r11", "memory");
    return result;
}

long ptrace(int request, int pid, void *address, void *data)
{
    struct vector *given = data, whole = { whole_state, LARGEST };
    word i, peeked = 0;
    int peeks = request >= 1 && request <= PEEKS;
    long result;

    if (request == SETREGSET && (word)address == XSTATE) {
        /* Once: a fresh child's tiles are in their initial state, which is what stays behind the copy. */
        if (!whole_length && kernel_ptrace(GETREGSET, pid, address, &whole) == 0)
            whole_length = whole.length;
        if (given->length < whole_length) {
            for (i = 0; i < given->length / sizeof(word); i++)
                ((word *)whole_state)[i] = ((word *)given->base)[i];
            *(word *)(whole_state + HEADER) &= KNOWN;
            whole.length = whole_length;
            data = &whole;
        }
    }
    result = kernel_ptrace(request, pid, address, peeks ? (void *)&peeked : data);
    if (result < 0) {
        *__errno_location() = -result;
        return -1;
    }
    return peeks ? (long)peeked : result;
}
