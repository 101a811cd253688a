-- A page of each of some buckets, by seq then id. Costs as much as what it returns, whatever the history.
--
-- ARGV: 3 '1' to return vectors and features, 4 'newest' or 'oldest' first, 5 bytes after which to stop, then
-- 5 a request: 'bucket' and its tag or 'session' and its name (every owner's buckets of it), how many records,
-- and the seq and id beyond which to begin ('' for the start).
-- Returns {tag, owner, elsewhere, '1' if more may follow, seq, id of the last, rows} a bucket.
local whole, newest, budget = ARGV[3] == '1', ARGV[4] == 'newest', tonumber(ARGV[5])
local FIRST_CHUNK, MAX_CHUNK = 16, 256

local function page(tag, count, seq, id)
  local base = base_of(tag)
  local meta = call('HMGET', base .. 'm', 'owner', 'elsewhere')
  local z, rows, position = base .. 'z', {}, 0
  if seq ~= '' then position = offset(z, seq, id, newest) end
  local more, last_seq, last_id = '0', seq, id
  local left, chunk = count, FIRST_CHUNK
  while left > 0 do
    local size = math.min(left, chunk)
    local command = newest and 'ZREVRANGE' or 'ZRANGE'
    local ranked = call(command, z, position, position + size - 1, 'WITHSCORES')
    local ids = {}
    for at = 1, #ranked, 2 do ids[#ids + 1] = ranked[at] end
    local found, bytes = rows_of(base, ids, whole)
    for _, row in ipairs(found) do rows[#rows + 1] = row end
    budget = budget - bytes
    -- As many as the rest of the budget holds of records of this size.
    chunk = math.max(1, math.min(MAX_CHUNK, math.floor(budget / math.max(1, bytes) * #found)))
    if #ids > 0 then last_id, last_seq = ids[#ids], string.format('%.0f', ranked[#ranked]) end
    if #ids < size then break end
    position, left = position + #ids, left - #ids
    if left == 0 or budget <= 0 then
      more = '1'
      break
    end
  end
  return {tag, meta[1] or '', meta[2] and '1' or '0', more, last_seq, last_id, rows}
end

local pages = {}
for at = 6, #ARGV, 5 do
  local tags = {ARGV[at + 1]}
  if ARGV[at] == 'session' then tags = call('SMEMBERS', root .. 'q:' .. ARGV[at + 1]) end
  for _, tag in ipairs(tags) do
    if budget > 0 or #pages == 0 then
      pages[#pages + 1] = page(tag, tonumber(ARGV[at + 2]), ARGV[at + 3], ARGV[at + 4])
    else
      -- Not reached: the caller asks again from where it was.
      pages[#pages + 1] = {tag, '', '0', '1', ARGV[at + 3], ARGV[at + 4], {}}
    end
  end
end
return pages
