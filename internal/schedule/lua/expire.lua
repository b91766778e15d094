-- expire.lua: bury deliveries that waited past their expires_at.
--
-- KEYS[1]  prefix of the partition
-- ARGV     per delivery: id, body (or '')
-- Returns  a word per delivery: applied, already (final), stale (leased, or not
--          expired after all), missing
--
-- A leased one is left alone: its worker's verdict is decided against expires_at.
-- Run twice, the second run finds it dead.
local out = {}
for i = 1, #ARGV, 2 do
  local r = record(ARGV[i])
  if not r then
    out[#out + 1] = 'missing'
  elseif r.st == 's' and num(r.exp) <= NOW then
    unqueue(r)
    bury(r, 'expired', ARGV[i + 1])
    out[#out + 1] = 'applied'
  elseif r.st == 's' or r.st == 'l' then
    out[#out + 1] = 'stale'
  else
    out[#out + 1] = 'already'
  end
end
finish()
return out
