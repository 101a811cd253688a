-- Set the status of records, and their JSON where it is given. Returns '1' for each that has its etag.
--
-- ARGV: from 5, id, etag, status, and JSON or ''.
local outcomes = {}
for at = 5, #ARGV, 4 do
  local record = live(ARGV[at])
  local same = record and record.state[ETAG] == ARGV[at + 1]
  if same then
    record.state[STATUS] = ARGV[at + 2]
    if ARGV[at + 3] ~= '' then push('HSET', record.bucket.base .. 'j', record.id, ARGV[at + 3]) end
    change(record)
  end
  outcomes[#outcomes + 1] = same and '1' or '0'
end
commit()
return outcomes
