-- Active records at a key. Returns rows of the first owner that has one, or of all owners when none of those has.
--
-- ARGV: 3 '1' to return vectors and features, 4 key, 5 '1' to look at every owner's, then owners by preference.
local STATUS = 9 -- in the state of a record, as `ledger` has it
local whole, index = ARGV[3] == '1', root .. 'k:' .. ARGV[4]

local function row_of(id)
  local tag = id and call('GET', root .. 'i:' .. id)
  local row = tag and rows_of(base_of(tag), {id}, whole)[1]
  return row and cjson.decode(row[3])[STATUS] == 'active' and row
end

for at = 6, #ARGV do
  local row = row_of(call('HGET', index, ARGV[at]))
  if row then return {row} end
end
local rows = {}
if ARGV[5] == '1' then
  for _, id in ipairs(call('HVALS', index)) do rows[#rows + 1] = row_of(id) or nil end
end
return rows
