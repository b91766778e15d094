// Package schedule answers one question: when, and who holds it?
//
// It is the only owner of queue state in Redis, and the only package that talks
// to Redis. Each transition of a delivery is one Lua script in lua/, atomic on
// one slot; this package packs their arguments and reads their answers, and
// decides nothing. Read lua/clock.lua first, then lua/lease.lua and
// lua/settle.lua: that is the engine.
//
// All state of one subscriber lives in one of P partitions (see partition.go),
// so the same code runs on one Redis and on a Redis Cluster. docs/redis.md lists
// every key.
package schedule
