-- Put tombstones that were made elsewhere. Returns the outcome of each: forgotten, live or absent.
--
-- ARGV: from 5, 3 a tombstone: id ('' to mark the session alone), bucket ('' to mark none), and the
-- tombstone itself (a JSON list of strings).

local function outranks(stone, old)
  if old[REASON] == 'forgotten' then return tonumber(stone[DEATH]) > tonumber(old[DEATH]) end
  return tonumber(stone[DEATH_MOVES]) >= tonumber(old[DEATH_MOVES])
end

local function put_moved(id, tag, stone)
  if tag ~= '' then mark_elsewhere(bucket(tag, stone[OWNER], stone[SESSION])) end
  if id == '' then return 'absent' end
  if live(id) then return 'live' end
  local old = grave(id)
  if not old or outranks(stone, old) then bury(id, stone) end
  return grave(id)[REASON] == 'moved' and 'absent' or 'forgotten'
end

local function put_forgotten(id, stone)
  local record, old = live(id), grave(id)
  if record and tonumber(record.state[SEQ]) > tonumber(stone[DEATH]) then return 'live' end
  if record then remove(record) end
  if not old or old[REASON] == 'moved' or tonumber(old[DEATH]) < tonumber(stone[DEATH]) then
    -- A script that begins by deleting is not refused at `maxmemory`: what is to be forgotten always can be.
    push('DEL', root .. 't:' .. id)
    bury(id, stone)
  end
  return record and 'forgotten' or 'absent'
end

local outcomes = {}
for at = 5, #ARGV, 3 do
  local id, tag, stone = ARGV[at], ARGV[at + 1], cjson.decode(ARGV[at + 2])
  outcomes[#outcomes + 1] = stone[REASON] == 'moved' and put_moved(id, tag, stone) or put_forgotten(id, stone)
end
commit()
return outcomes
