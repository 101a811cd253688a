-- What every writing script begins with: records, keys, aliases, tombstones and buckets, read once and
-- written at the end. Nothing is written before the whole call has been decided, so a refusal leaves no trace.
--
-- ARGV: 1 prefix of bucket keys, 2 prefix of index keys, 3 a word for this call's etags,
--       4 milliseconds that a tombstone lives.
local prefix, root, word, grave_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local call = redis.call

-- Fields of a record's state. All are strings: cjson keeps those and loses precision in numbers.
local ETAG, SEQ, CREATED, REVISION, MOVES, ACCESSES, SALIENCE, ACCESSED, STATUS, KEY, ARRIVAL, ALIAS =
  1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12

local function int(number) return string.format('%.0f', number) end
local function float(number) return string.format('%.17g', number) end

local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]

local issued = 0
local function etag()
  issued = issued + 1
  return word .. '.' .. issued
end

local queue = {}
local function push(...) queue[#queue + 1] = {...} end

local floor
local function last_seq()
  floor = floor or tonumber(call('GET', root .. 'l') or 0)
  return floor
end
local function issue(seq)
  floor = seq
end

local buckets = {}
local function bucket(tag, owner, session)
  local found = buckets[tag]
  if not found then
    local base = prefix .. '{' .. tag .. '}:'
    local meta = call('HMGET', base .. 'm', 'owner', 'session', 'last', 'elsewhere')
    local held = call('ZCARD', base .. 'z')
    found = {
      tag = tag, base = base, owner = meta[1] or owner, session = meta[2] or session,
      last = meta[3] and tonumber(meta[3]), elsewhere = meta[4] and true or false,
      known = meta[1] and true or false, before = held, held = held,
    }
    buckets[tag] = found
  end
  return found
end

local records = {}
local function live(id)
  if records[id] == nil then
    local tag = call('GET', root .. 'i:' .. id)
    local home = tag and bucket(tag)
    local state = home and call('HGET', home.base .. 's', id)
    records[id] = state and {id = id, bucket = home, state = cjson.decode(state)} or false
  end
  return records[id]
end

local aliases = {}
-- The live record of an id, or the one that an alias of the same owner stands for.
local function held(id, owner)
  local record = live(id)
  if record then return record end
  local at = owner .. '\0' .. id
  if aliases[at] == nil then aliases[at] = call('HGET', root .. 'a:' .. id, owner) or false end
  return aliases[at] and live(aliases[at])
end

local keys = {}
local function occupant(key, owner)
  local at = owner .. '\0' .. key
  if keys[at] == nil then keys[at] = call('HGET', root .. 'k:' .. key, owner) or false end
  return keys[at] and live(keys[at])
end

local graves = {}
local REASON, DEATH, DEATH_MOVES, OWNER, SESSION, TARGET = 1, 2, 3, 4, 5, 6
local function grave(id)
  if graves[id] == nil then
    local text = call('GET', root .. 't:' .. id)
    graves[id] = text and cjson.decode(text) or false
  end
  return graves[id]
end

local forgotten = {}
-- A tombstone: reason, seq, moves, owner, session, target, key.
local function bury(id, stone)
  graves[id] = stone
  push('SET', root .. 't:' .. id, cjson.encode(stone), 'PX', grave_ms)
  forgotten[id] = stone[REASON] == 'forgotten' and stone[DEATH] or ''
end

local function remove(record)
  local home, state, id = record.bucket, record.state, record.id
  for _, part in ipairs({'j', 's', 'v', 'f'}) do push('HDEL', home.base .. part, id) end
  push('ZREM', home.base .. 'z', id)
  push('DEL', root .. 'i:' .. id)
  if state[KEY] ~= '' then
    push('HDEL', root .. 'k:' .. state[KEY], home.owner)
    keys[home.owner .. '\0' .. state[KEY]] = false
  end
  for at = ALIAS, #state do
    push('HDEL', root .. 'a:' .. state[at], home.owner)
    aliases[home.owner .. '\0' .. state[at]] = false
  end
  if state[ARRIVAL] ~= '' then push('ZREM', root .. 'n', id) end
  home.held = home.held - 1
  home.changed = true
  records[id] = false
end

local function change(record)
  record.state[ETAG] = etag()
  push('HSET', record.bucket.base .. 's', record.id, cjson.encode(record.state))
end

-- Hold a new record; `body` has its json, vector and features as bytes ('' for none).
local function keep(id, home, state, body)
  local seq = tonumber(state[SEQ])
  push('HSET', home.base .. 'j', id, body.json)
  push('HSET', home.base .. 's', id, cjson.encode(state))
  if body.vector ~= '' then push('HSET', home.base .. 'v', id, body.vector) end
  if body.features ~= '' then push('HSET', home.base .. 'f', id, body.features) end
  push('ZADD', home.base .. 'z', state[SEQ], id)
  push('SET', root .. 'i:' .. id, home.tag)
  if state[KEY] ~= '' then
    push('HSET', root .. 'k:' .. state[KEY], home.owner, id)
    keys[home.owner .. '\0' .. state[KEY]] = id
  end
  for at = ALIAS, #state do
    push('HSET', root .. 'a:' .. state[at], home.owner, id)
    aliases[home.owner .. '\0' .. state[at]] = id
  end
  if state[ARRIVAL] ~= '' then push('ZADD', root .. 'n', 0, id) end
  if grave(id) then
    push('DEL', root .. 't:' .. id)
    forgotten[id] = ''
    graves[id] = false
  end
  home.held = home.held + 1
  home.last = math.max(home.last or seq, seq)
  home.changed = true
  records[id] = {id = id, bucket = home, state = state}
end

local function mark_elsewhere(home)
  if not home.elsewhere then
    home.elsewhere = true
    home.marked = true
    home.changed = true
  end
end

local function list_bucket(home)
  local member, was = home.tag, home.before > 0
  local is = home.held > 0
  if is and not was then
    push('ZADD', root .. 'b', 0, member)
    push('ZADD', root .. 'b:' .. home.owner, 0, member)
  elseif was and not is then
    push('ZREM', root .. 'b', member)
    push('ZREM', root .. 'b:' .. home.owner, member)
  end
  if is or home.elsewhere then
    if not home.known or not was then push('SADD', root .. 'q:' .. home.session, member) end
  elseif was then
    push('SREM', root .. 'q:' .. home.session, member)
  end
end

local function write_bucket(home, totals)
  local meta = home.base .. 'm'
  push('HSET', meta, 'last', int(home.last or 0))
  if not home.known then push('HSET', meta, 'owner', home.owner, 'session', home.session) end
  if home.marked then push('HSET', meta, 'elsewhere', '1') end
  if home.held == 0 and not home.elsewhere then
    push('PEXPIRE', meta, grave_ms)
  elseif home.before == 0 then
    push('PERSIST', meta)
  end
  list_bucket(home)
  local difference = home.held - home.before
  totals[home.owner] = (totals[home.owner] or 0) + difference
  totals[''] = (totals[''] or 0) + difference
end

-- Write what was decided. The first command of a deletion frees memory, so that one works at `maxmemory`;
-- after the first write of a script the server does not refuse the others.
local function commit()
  local totals = {}
  for _, home in pairs(buckets) do
    if home.changed then write_bucket(home, totals) end
  end
  for owner, difference in pairs(totals) do
    if difference ~= 0 then push('HINCRBY', root .. 'o', owner, difference) end
  end
  if floor then push('SET', root .. 'l', int(floor)) end
  for _, command in ipairs(queue) do call(unpack(command)) end
  -- On a Cluster the directory has the list.
  if root == prefix then list(root .. 'g', forgotten, now, grave_ms) end
  for owner, difference in pairs(totals) do
    if difference < 0 and call('HGET', root .. 'o', owner) == '0' then call('HDEL', root .. 'o', owner) end
  end
end

-- Who may see what: '*' for everyone, else a JSON list of owners.
local function visibility(text)
  if text == '*' then return function() return true end end
  local readable = {}
  for _, owner in ipairs(cjson.decode(text)) do readable[owner] = true end
  return function(owner) return readable[owner] or false end
end
