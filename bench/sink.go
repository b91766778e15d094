package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
)

// endpoints is how many listeners the sink has, each an endpoint with connections
// of its own.
const endpoints = 10

// sinkMain is the receiver: it reads the body, counts, and answers 204. It verifies
// nothing, because that would be the same for all. It prints its URLs on one line.
func sinkMain(args []string) error {
	b, err := openBoard(args[0])
	if err != nil {
		return err
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			return
		}
		b.arrived(n)
		w.WriteHeader(http.StatusNoContent)
	})
	var urls []string
	failed := make(chan error, endpoints)
	for range endpoints {
		ln, err := new(net.ListenConfig).Listen(context.Background(), "tcp4", "127.0.0.1:0")
		if err != nil {
			return err
		}
		urls = append(urls, "http://"+ln.Addr().String()+"/hook")
		go func() { failed <- http.Serve(ln, handler) }() //nolint:gosec // it lives for a run, on loopback
	}
	fmt.Println(strings.Join(urls, ","))
	return <-failed
}

// listen answers each line of stdin by one line of stdout, until stdin ends.
func listen(answer func(line string) (string, error)) error {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		text, err := answer(in.Text())
		if err != nil {
			text = "error " + strings.ReplaceAll(err.Error(), "\n", " ")
		}
		fmt.Println(text)
	}
	return in.Err()
}
