-- discard.lua: forget dead letters, evidence and payload too, because an operator said
-- so.
--
-- KEYS[1]  prefix of the partition
-- ARGV     for how long it is known that they were discarded (ms), id...
-- Returns  a word per delivery: discarded, claimed (a cohort has it), not_dead, missing
--
-- The ledger stays as it is: `dead` counts how deliveries ended, not what is kept.
-- Run twice, the second run finds them gone.
local out = {}
for i = 2, #ARGV do
  local id = ARGV[i]
  local r = record(id)
  if not r then
    out[#out + 1] = 'missing'
  elseif r.st ~= 'x' then
    out[#out + 1] = 'not_dead'
  elseif redis.call('HEXISTS', T .. 'claims', id) == 1 then
    out[#out + 1] = 'claimed'
  else
    forget(id, r)
    redis.call('SET', T .. 'gone:' .. id, '1', 'PX', ARGV[1]) -- else its event would seem not to be expanded
    out[#out + 1] = 'discarded'
  end
end
return out
