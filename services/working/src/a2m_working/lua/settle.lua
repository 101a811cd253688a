-- Clear the arrival of records by id and etag, which stays. ARGV: from 5, id and etag.
for at = 5, #ARGV, 2 do
  local record = live(ARGV[at])
  if record and record.state[ETAG] == ARGV[at + 1] and record.state[ARRIVAL] ~= '' then
    record.state[ARRIVAL] = ''
    push('HSET', record.bucket.base .. 's', record.id, cjson.encode(record.state))
    push('ZREM', root .. 'n', record.id)
  end
end
commit()
return 'OK'
