// Package access answers one question: who may, and who did?
//
// A request carries a token. Gate tells whose key it is: an Identity with a Role,
// which package httpapi holds against what the operation asks for. Keys makes and
// revokes keys. Sessions let a browser show something else once its user has shown a
// key. Audit keeps what was changed, by whom and why.
//
// A token is shown once, when its key is created. Redis holds its SHA-256 alone:
// who can read Redis can use no key. All state lies in one hash slot, and
// store.go is the only file here that talks to Redis; docs/redis.md lists the
// keys, and docs/adr/0015-access-store.md says why they are not the scheduler's.
package access
