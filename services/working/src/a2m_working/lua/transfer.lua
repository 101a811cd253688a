-- Write records as they are. Returns the refusal, or {'ok', {id, outcome, etag, revision, tier, reason} ...}.
local counts = {}
-- A draft's own seq, else its `created_at` (milliseconds; the clock when there is none) and its position
-- among those of that millisecond.
local function place(state)
  if state[SEQ] ~= '' then return end
  local start = state[CREATED] ~= '' and tonumber(state[CREATED]) or math.floor(now / 1000)
  local count = counts[start] or 0
  counts[start] = count + 1
  state[SEQ] = int(start * 1000 + count)
end

local function refuse(draft, reason, found, tier)
  local state = found and found.state
  return {found and found.id or draft.id, 'refused', state and state[ETAG] or '', state and state[REVISION] or '0',
          tier or '', reason}
end

local function transfer(draft)
  local state = draft.state
  place(state)
  local moves = tonumber(state[MOVES])
  local stone = grave(draft.id)
  if stone and stone[REASON] == 'forgotten' and tonumber(state[SEQ]) <= tonumber(stone[DEATH]) then
    return refuse(draft, 'forgotten')
  end
  if stone and stone[REASON] == 'moved' and tonumber(stone[DEATH_MOVES]) >= moves then
    return refuse(draft, 'moved', nil, stone[TARGET])
  end
  local found = held(draft.id, draft.owner)
  if found and (found.id ~= draft.id or tonumber(found.state[MOVES]) >= moves
                or tonumber(found.state[SEQ]) > tonumber(state[SEQ])) then
    return refuse(draft, 'exists', found)
  end
  local other = draft.key ~= '' and occupant(draft.key, draft.owner)
  if draft.key_claim == 'held' or other and other.id ~= draft.id then return refuse(draft, 'key') end
  if misplaced(draft) then return {draft.id, 'retry', '', '0', '', ''} end
  if found then remove(found) end
  state[ETAG] = etag()
  if state[SALIENCE] == '' then state[SALIENCE] = '1' end
  local home = bucket(draft.tag, draft.owner, draft.session)
  keep(draft.id, home, state, draft)
  return {draft.id, 'created', state[ETAG], state[REVISION], '', '', home.elsewhere and '1' or ''}
end

local refused = refusal()
if refused then return refused end
local written = {'ok'}
for draft in drafts() do written[#written + 1] = transfer(draft) end
commit()
return written
