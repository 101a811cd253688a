-- Append drafts: all or nothing. Returns the refusal, or {'ok', {id, outcome, etag, revision, tier} ...}, with
-- what is created also no reason and '1' where its session has records elsewhere.
local function rewrite(old, draft)
  local state = draft.state
  state[ETAG] = etag()
  for _, kept in ipairs({SEQ, CREATED, MOVES, ACCESSES, ACCESSED, ARRIVAL}) do state[kept] = old.state[kept] end
  state[REVISION] = int(old.state[REVISION] + 1)
  if state[SALIENCE] == '' then state[SALIENCE] = old.state[SALIENCE] end
  local names = {}
  for at = ALIAS, #old.state do
    if old.state[at] ~= draft.id then names[#names + 1] = old.state[at] end
  end
  names[#names + 1] = draft.id
  for at = math.max(1, #names - 63), #names do state[#state + 1] = names[at] end
  remove(old)
  keep(old.id, bucket(draft.tag, draft.owner, draft.session), state, draft)
  return {old.id, 'replaced', state[ETAG], state[REVISION], ''}
end

local function create(draft, stone)
  local home = bucket(draft.tag, draft.owner, draft.session)
  local start = draft.place ~= '' and tonumber(draft.place) or now
  local seq = math.max(start, last_seq() + 1, (home.last or 0) + 1, stone and stone[DEATH] + 1 or 0)
  issue(seq)
  local state = draft.state
  state[ETAG], state[SEQ] = etag(), int(seq)
  if state[SALIENCE] == '' then state[SALIENCE] = '1' end
  keep(draft.id, home, state, draft)
  return {draft.id, 'created', state[ETAG], state[REVISION], '', '', home.elsewhere and '1' or ''}
end

local function write(draft)
  local found = held(draft.id, draft.owner)
  if found then
    change(found)
    return {found.id, 'existing', found.state[ETAG], found.state[REVISION], ''}
  end
  local stone = grave(draft.id)
  if stone and stone[REASON] == 'moved' then return {draft.id, 'moved', '', '0', stone[TARGET]} end
  if misplaced(draft) then return {draft.id, 'retry', '', '0', ''} end
  local old = draft.key ~= '' and occupant(draft.key, draft.owner)
  if old then return rewrite(old, draft) end
  return create(draft, stone)
end

local refused = refusal()
if refused then return refused end
local written = {'ok'}
for draft in drafts() do written[#written + 1] = write(draft) end
commit()
return written
