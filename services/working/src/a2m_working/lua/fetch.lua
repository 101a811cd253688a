-- Records at a key. Returns rows of the first owner that has one, or of all owners when none of those has.
--
-- ARGV: 3 '1' to return vectors and features, 4 key, 5 '1' to look at every owner's, then owners by preference.
local whole, index = ARGV[3] == '1', root .. 'k:' .. ARGV[4]

local function row_of(id)
  local tag = id and call('GET', root .. 'i:' .. id)
  return tag and rows_of(base_of(tag), {id}, whole)[1]
end

for at = 6, #ARGV do
  local row = row_of(call('HGET', index, ARGV[at]))
  if row then return {row} end
end
local rows = {}
if ARGV[5] == '1' then
  for _, id in ipairs(call('HVALS', index)) do rows[#rows + 1] = row_of(id) end
end
return rows
