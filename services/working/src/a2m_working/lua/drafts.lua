-- The drafts of a call and what refuses all of them.
--
-- ARGV: 5 owners whose records the caller sees, 6 width of vectors by configuration or '', 7 the bucket that
-- this call is for ('' for any, on one server), then 12 a draft: id, bucket, owner, session, JSON, vector,
-- features, key or '', state (a JSON list of strings), the lowest seq it may get or '', and on a Cluster the
-- numbers of the claims to its id and key (of a key, 'held' when a record in another bucket has it).
local HERE = ARGV[7]
local STRIDE = 12
local FIRST = 8

local function drafts()
  local at = FIRST - STRIDE
  return function()
    at = at + STRIDE
    if at + STRIDE - 1 > #ARGV then return nil end
    return {
      id = ARGV[at], tag = ARGV[at + 1], owner = ARGV[at + 2], session = ARGV[at + 3],
      json = ARGV[at + 4], vector = ARGV[at + 5], features = ARGV[at + 6], key = ARGV[at + 7],
      state = cjson.decode(ARGV[at + 8]), place = ARGV[at + 9],
      claim = ARGV[at + 10], key_claim = ARGV[at + 11],
    }
  end
end

local function fenced(kind, name, number)
  local fence = call('GET', root .. 'x:' .. kind .. ':' .. name)
  return fence and tonumber(fence) >= tonumber(number)
end

-- Whether a draft would become a record in a bucket that is not its own, or whose claim was given to another.
local function misplaced(draft)
  if HERE == '' then return false end
  return draft.tag ~= HERE
    or draft.claim ~= '' and fenced('i', draft.id, draft.claim)
    or draft.key ~= '' and draft.key_claim ~= '' and fenced('k', draft.owner .. '\0' .. draft.key, draft.key_claim)
end

-- Returns what refuses the batch, or nil: {'denied', id} or {'width', expected, given}.
local function refusal()
  local sees = visibility(ARGV[5])
  for draft in drafts() do
    local found, owner = held(draft.id, draft.owner), nil
    if found then
      owner = found.bucket.owner
    else
      local stone = grave(draft.id)
      owner = stone and stone[REASON] == 'moved' and stone[OWNER]
    end
    if owner and not sees(owner) then return {'denied', draft.id} end
  end
  local stored = call('GET', root .. 'w')
  -- An empty store has no vectors: the next one fixes their width anew. A bucket of a Cluster sees itself alone.
  if HERE == '' and not call('HGET', root .. 'o', '') then stored = nil end
  local width = ARGV[6] ~= '' and tonumber(ARGV[6]) or stored and tonumber(stored)
  for draft in drafts() do
    if draft.vector ~= '' then
      local given = #draft.vector / 4
      width = width or given
      if given ~= width then return {'width', int(width), int(given)} end
    end
  end
  if width and not stored then push('SET', root .. 'w', int(width)) end
  return nil
end
