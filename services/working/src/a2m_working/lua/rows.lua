-- What every reading script begins with: rows of a bucket, {id, JSON, state, vector, features}.
local prefix, root = ARGV[1], ARGV[2]
local call = redis.call

local function base_of(tag) return prefix .. '{' .. tag .. '}:' end

-- Rows of `ids`, in order, with their size in bytes; a record is left out that is not whole.
local function rows_of(base, ids, whole)
  local rows, size = {}, 0
  if #ids == 0 then return rows, size end
  local bodies = call('HMGET', base .. 'j', unpack(ids))
  local states = call('HMGET', base .. 's', unpack(ids))
  local vectors = whole and call('HMGET', base .. 'v', unpack(ids))
  local features = whole and call('HMGET', base .. 'f', unpack(ids))
  for at, id in ipairs(ids) do
    if bodies[at] and states[at] then
      local vector, feature = vectors and vectors[at] or '', features and features[at] or ''
      rows[#rows + 1] = {id, bodies[at], states[at], vector, feature}
      size = size + #bodies[at] + #states[at] + #vector + #feature
    end
  end
  return rows, size
end
