// Package client answers: how does a Go program use fanout?
//
// The module is published nowhere: no public proxy has it. Another module gets it
// from a checkout beside it,
//
//	go mod edit -require=github.com/fanout/fanout@v0.0.0 -replace=github.com/fanout/fanout=../fanout
//	go mod tidy
//
// or from a proxy of your own that has it: set GOPROXY to that, and GONOSUMDB to
// github.com/fanout/fanout, for the public checksum database does not know it.
//
// A producer needs two calls:
//
//	c, err := client.New("https://fanout.example.com", token)
//	receipt, err := c.Post(ctx, client.Event{Type: "shipment.delivered", ShipmentID: "shp_1", OccurredAt: at, Data: data})
//
// Post may be called again after any doubt, and does so by itself: every event has
// an id before it leaves, and an id is accepted once. PostBatch takes any number of
// events; PostRaw and PostBatchRaw take those that are JSON already. The rest of the API is here too, for the tools of operators and
// subscribers; every list is also an iterator over all of its pages.
//
// What is repeated: a call that may be made twice is made again after a lost
// connection, a 502, 503 or 504; any call after a 429, and after a connection that
// was never made. Nothing else is, and no call for ever: by default at most 6 times
// after the first attempt (WithRetries). Between two attempts the wait is drawn anew
// from a window that begins at 200 ms and doubles up to 10 s (WithBackoff), so that
// producers that failed together do not come back together: 6 s of waiting on average
// and 12.6 s at most, beside the attempts, of 40 s at most each (WithAttemptTimeout). A
// Retry-After of a 429 or 503 comes before the wait, up to 30 s of it
// (WithRetryAfterCap). The context bounds a call with all its attempts.
//
// An error that the server answered is a *Problem; ErrConflict and its like say
// what kind it is. No error and no text of a Client holds its token.
package client
