// Package audit answers: does what stands in Redis add up?
//
// It reads the raw keys (docs/redis.md lists them), independently of the scripts
// and of the engine that wrote them, and checks what must hold whenever nobody is
// writing: the ledger balances and says what the records say; each delivery
// stands in exactly the places that its state demands; each subscriber's count of
// open leases is right and each of its lanes stands in one place; every delivery
// that an event was planned for exists, and so does the payload that it needs.
package audit
