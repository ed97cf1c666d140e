"""The fixed Lua code of the Wireshark dissector, which walks the generated tables of header fields."""

from typing import Final

DISSECTOR: Final = """
local data_dissector = Dissector.get("data")
local ethertype_table = DissectorTable.get("ethertype")
local udp_table = DissectorTable.get("udp.port")

local route = Proto("mlt_route", "MLT source route")
local agent = Proto("mlt_agent", "MLT agent")

local route_hops = ProtoField.uint8("mlt_route.hops", "Hops", base.DEC)
local route_hop = ProtoField.none("mlt_route.hop", "Hop")
local agent_payload = ProtoField.bytes("mlt_agent.payload", "Payload")
local agent_elements = ProtoField.uint32("mlt_agent.elements", "Elements", base.DEC)
local agent_piece = ProtoField.none("mlt_agent.piece", "Piece")
local agent_message = ProtoField.none("mlt_agent.message", "Message")
local agent_body = ProtoField.bytes("mlt_agent.message.body", "Body")
local agent_tag = ProtoField.bytes("mlt_agent.tag", "Authentication tag")

-- Registers the fields of headers, and lets them and their flags be found by name.
local function declare(protocol, headers, others)
  local fields = others
  for _, header in ipairs(headers) do
    for _, entry in ipairs(header.fields) do
      header[entry.name] = entry
      fields[#fields + 1] = entry.field
      for _, flag in ipairs(entry.flags) do
        entry[flag.name] = flag
        fields[#fields + 1] = flag.field
      end
    end
  end
  protocol.fields = fields
end

declare(route, { source_route_header, hop_header }, { route_hops, route_hop })
declare(agent, { agent_header, acknowledgement_header, piece_header, message_header },
  { agent_payload, agent_elements, agent_piece, agent_message, agent_body, agent_tag })

local function notes_of(prefix, endings)
  local notes = {
    short = ProtoExpert.new(prefix .. ".short", "Malformed: the packet ends too early",
      expert.group.MALFORMED, expert.severity.ERROR),
    cut = ProtoExpert.new(prefix .. ".cut", "The capture does not hold the rest of the packet",
      expert.group.UNDECODED, expert.severity.NOTE),
    version = ProtoExpert.new(prefix .. ".unknown_version", "Unknown version",
      expert.group.UNDECODED, expert.severity.WARN),
  }
  for name, text in pairs(endings) do
    notes[name] = ProtoExpert.new(prefix .. "." .. name, "Malformed: " .. text,
      expert.group.MALFORMED, expert.severity.ERROR)
  end
  return notes
end

local route_notes = notes_of("mlt_route", { endless = "no hop is the last" })
local agent_notes = notes_of("mlt_agent", { uneven = "the payload is no whole number of elements" })
route.experts = route_notes
agent.experts = agent_notes

-- Whether a header fits in at the offset; where it does not, says why.
local function is_there(tree, notes, buffer, pinfo, offset, header)
  if buffer:len() >= offset + header.bytes then return true end
  tree:add_proto_expert_info(pinfo.caplen < pinfo.len and notes.cut or notes.short)
  return false
end

local function number(buffer, offset, entry)
  return buffer(offset + entry.offset, entry.size):bitfield(entry.first_bit, entry.bits)
end

local function is_set(buffer, offset, entry, flag)
  return buffer(offset + entry.offset, entry.size):bitfield(flag.bit, 1) == 1
end

local function add_header(tree, buffer, offset, header)
  for _, entry in ipairs(header.fields) do
    local range = buffer(offset + entry.offset, entry.size)
    local item = tree:add(entry.field, range)
    for _, flag in ipairs(entry.flags) do item:add(flag.field, range) end
  end
end

-- Whether the version is the one that the tables describe; where it is not, shows no more than its number.
local function is_known(tree, notes, buffer, header, version)
  if number(buffer, 0, header.version) == version then return true end
  tree:add(header.version.field, buffer(header.version.offset, header.version.size))
  tree:add_proto_expert_info(notes.version)
  return false
end

local function add_rest(buffer, offset, pinfo, root)
  if offset < buffer:len() then data_dissector:call(buffer(offset):tvb(), pinfo, root) end
end

-- Hands the packet behind a route on. Where it ends too early, `try` notes that it is malformed, then fails.
local function add_packet(ether_type, buffer, pinfo, root)
  local is_done, result = pcall(ethertype_table.try, ethertype_table, ether_type, buffer, pinfo, root)
  if not is_done and not string.find(result, "Malformed frame", 1, true) then error(result, 0) end
  if result == 0 then data_dissector:call(buffer, pinfo, root) end
end

-- Adds the stack of hops; returns where it ends, and whether with a last hop.
local function add_hops(tree, buffer, pinfo)
  local offset, ports, is_last = source_route_header.bytes, {}, false
  while not is_last and #ports < MAXIMUM_HOPS do
    if not is_there(tree, route_notes, buffer, pinfo, offset, hop_header) then break end
    local port = number(buffer, offset, hop_header.port)
    is_last = number(buffer, offset, hop_header.last) == 1
    ports[#ports + 1] = port
    local item = tree:add(route_hop, buffer(offset, hop_header.bytes))
    item:set_text(string.format("Hop %d: port %d%s", #ports, port, is_last and ", last" or ""))
    add_header(item, buffer, offset, hop_header)
    offset = offset + hop_header.bytes
  end
  if not is_last and #ports == MAXIMUM_HOPS then tree:add_proto_expert_info(route_notes.endless) end
  tree:add(route_hops, #ports):set_generated()
  local summary = "ports " .. table.concat(ports, " ")
  pinfo.cols.info = summary
  tree:append_text(", " .. summary)
  tree:set_len(offset)
  return offset, is_last
end

function route.dissector(buffer, pinfo, root)
  pinfo.cols.protocol = "MLT route"
  local tree = root:add(route, buffer(0))
  if not is_there(tree, route_notes, buffer, pinfo, 0, source_route_header) then return buffer:len() end
  if not is_known(tree, route_notes, buffer, source_route_header, SOURCE_ROUTE_VERSION) then
    return buffer:len()
  end
  add_header(tree, buffer, 0, source_route_header)
  local offset, is_complete = add_hops(tree, buffer, pinfo)
  if is_complete and offset < buffer:len() then
    add_packet(number(buffer, 0, source_route_header.ether_type), buffer(offset):tvb(), pinfo, root)
  else
    add_rest(buffer, offset, pinfo, root)
  end
  return buffer:len()
end

-- Length of what lies between header and tag, after the tag has been added; nil where that is not all there.
local function body_bytes(tree, buffer, pinfo)
  local first = agent_header.bytes
  local tag_bytes = is_set(buffer, 0, agent_header.flags, agent_header.flags.authenticated) and TAG_BYTES or 0
  if pinfo.caplen < pinfo.len then
    -- How much is missing is not known here: behind a route, Lua loses the length on the wire.
    if buffer:len() > first then tree:add(agent_payload, buffer(first)) end
    tree:add_proto_expert_info(agent_notes.cut)
    return nil
  end
  local size = buffer:len() - first - tag_bytes
  if size < 0 then
    tree:add_proto_expert_info(agent_notes.short)
    return nil
  end
  if tag_bytes > 0 then tree:add(agent_tag, buffer(first + size, tag_bytes)) end
  return size
end

local function add_data(tree, buffer, pinfo)
  local size = body_bytes(tree, buffer, pinfo)
  if not size then return end
  if size > 0 then tree:add(agent_payload, buffer(agent_header.bytes, size)) end
  local element_bytes = ELEMENT_BYTES[number(buffer, 0, agent_header.element_type)]
  if element_bytes then
    tree:add(agent_elements, math.floor(size / element_bytes)):set_generated()
    if size % element_bytes ~= 0 then tree:add_proto_expert_info(agent_notes.uneven) end
  end
end

-- Adds the header of an acknowledgement; of a selective one pieces of bitmaps, too.
local function add_acknowledgement(tree, buffer, pinfo, has_pieces)
  local size = body_bytes(tree, buffer, pinfo)
  if not size then return end
  local offset = agent_header.bytes
  local finish = offset + size
  if size >= acknowledgement_header.bytes then
    add_header(tree, buffer, offset, acknowledgement_header)
    offset = offset + acknowledgement_header.bytes
    while has_pieces and offset + piece_header.bytes <= finish do
      local item = tree:add(agent_piece, buffer(offset, piece_header.bytes))
      item:set_text(string.format("Piece: tensor %.0f, round %.0f, from packet %.0f",
        number(buffer, offset, piece_header.tensor), number(buffer, offset, piece_header.round),
        number(buffer, offset, piece_header.number) * PIECE_PACKETS))
      add_header(item, buffer, offset, piece_header)
      offset = offset + piece_header.bytes
    end
    if offset == finish then return end
  end
  if offset < finish then tree:add(agent_payload, buffer(offset, finish - offset)) end
  if has_pieces or size < acknowledgement_header.bytes then
    tree:add_proto_expert_info(agent_notes.short)
  end
end

local function add_messages(tree, buffer, pinfo)
  local offset = agent_header.bytes
  local size = body_bytes(tree, buffer, pinfo)
  if not size then return end
  local finish = offset + size
  while offset < finish do
    local first = offset + message_header.bytes
    local length = first <= finish and number(buffer, offset, message_header.length)
    if not length or first + length > finish then
      tree:add_proto_expert_info(agent_notes.short)
      return
    end
    local item = tree:add(agent_message, buffer(offset, message_header.bytes + length))
    local kind = number(buffer, offset, message_header.type)
    item:set_text("Message: " .. (MESSAGES[kind] or "type " .. kind))
    add_header(item, buffer, offset, message_header)
    if length > 0 then item:add(agent_body, buffer(first, length)) end
    offset = first + length
  end
end

function agent.dissector(buffer, pinfo, root)
  pinfo.cols.protocol = "MLT agent"
  local tree = root:add(agent, buffer(0))
  if not is_there(tree, agent_notes, buffer, pinfo, 0, agent_header) then return buffer:len() end
  if not is_known(tree, agent_notes, buffer, agent_header, AGENT_VERSION) then return buffer:len() end
  add_header(tree, buffer, 0, agent_header)
  local kind = number(buffer, 0, agent_header.kind)
  local summary = string.format("%s, tensor %.0f, round %.0f, packet %.0f",
    KINDS[kind] or "kind " .. kind, number(buffer, 0, agent_header.tensor),
    number(buffer, 0, agent_header.round), number(buffer, 0, agent_header.sequence))
  pinfo.cols.info = summary
  tree:append_text(", " .. summary)
  if kind == KIND_DATA then
    add_data(tree, buffer, pinfo)
  elseif kind == KIND_ACKNOWLEDGEMENT or kind == KIND_SELECTIVE then
    add_acknowledgement(tree, buffer, pinfo, kind == KIND_SELECTIVE)
  elseif kind == KIND_CONTROL then
    add_messages(tree, buffer, pinfo)
  else
    add_rest(buffer, agent_header.bytes, pinfo, root)
  end
  return buffer:len()
end

ethertype_table:add(ETHERTYPE_SOURCE_ROUTE, route)

agent.prefs.port = Pref.uint("UDP port", AGENT_PORT, "Port of the agents; 0 for none")
local registered_port = 0

local function register_port()
  if registered_port ~= 0 then udp_table:remove(registered_port, agent) end
  registered_port = agent.prefs.port
  if registered_port ~= 0 then udp_table:add(registered_port, agent) end
end

agent.prefs_changed = register_port
register_port()
"""
