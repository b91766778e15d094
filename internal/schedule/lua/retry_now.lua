-- retry_now.lua: have a scheduled delivery fall due at once.
--
-- KEYS[1]  prefix of the partition
-- ARGV     id
-- Returns  its record, or '' if it is not scheduled
-- Errors   NOTFOUND no such delivery
--
-- It changes when, not whether: the budget, the subscriber's holds, its cap and its
-- rate are as ever. Run twice, the second run finds it due.
local r = record(ARGV[1])
if not r then return redis.error_reply('NOTFOUND no such delivery') end
if r.st ~= 's' then return '' end
if num(r.due) > NOW then
  unqueue(r)
  r.due = NOWS
  save(r)
  enqueue(r)
  finish()
end
return encode(r)
