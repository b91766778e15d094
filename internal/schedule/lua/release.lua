-- release.lua: hand back leases whose request never left.
--
-- KEYS[1]  prefix of the partition
-- ARGV     per lease: id, fence, wait (ms: it falls due that long from now; 0: as before)
-- Returns  how many were handed back
--
-- The attempt is given back and `releases` counts it, so that requests on the
-- wire <= delivery_count - releases. delivery_count itself never goes down. It says
-- nothing of the endpoint, and takes nothing back from a rate: a token is spent when
-- the lease is taken.
--
-- Run twice, the second run finds nothing leased at that fence.
local n = 0
for i = 1, #ARGV, 3 do
  local r, fence, wait = record(ARGV[i]), ARGV[i + 1], tonumber(ARGV[i + 2])
  if r and r.dc == fence then
    if wait > 0 and r.st == 'l' then r.due = plus(NOW, wait) end
    end_lease(r)
    if r.st == 'l' then
      r.st, r.wk = 's', '-'
      r.at, r.rl = plus(r.at, -1), plus(r.rl, 1)
      if r.at == '0' then r.fa, r.la = '0', '0' end
      save(r)
      enqueue(r)
      n = n + 1
    end
  end
end
finish()
return n
