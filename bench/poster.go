package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// bodySize is what goes over the wire, whoever sends it.
const bodySize = 512

// poster signs and posts as a good Go engineer would: one tuned transport, parsed
// URLs, keep-alive, the body drained. The ceiling and the asynq handler share it.
type poster struct {
	client *http.Client
	urls   []*url.URL
	key    []byte
}

func newPoster(urls string, concurrency int) (*poster, error) {
	p := &poster{key: bytes.Repeat([]byte("k"), 32)}
	for one := range strings.SplitSeq(urls, ",") {
		u, err := url.Parse(one)
		if err != nil {
			return nil, err
		}
		p.urls = append(p.urls, u)
	}
	p.client = &http.Client{Transport: &http.Transport{
		MaxIdleConnsPerHost: concurrency, DisableCompression: true, IdleConnTimeout: time.Minute,
	}}
	return p, nil
}

// post sends one body to one endpoint, with the headers of Standard Webhooks.
func (p *poster) post(ctx context.Context, endpoint int, id string, body []byte) error {
	stamp := strconv.FormatInt(time.Now().Unix(), 10)
	mac := hmac.New(sha256.New, p.key)
	_, _ = io.WriteString(mac, id+"."+stamp+".")
	_, _ = mac.Write(body)
	req := &http.Request{
		Method: http.MethodPost, URL: p.urls[endpoint], Host: p.urls[endpoint].Host,
		Header: http.Header{
			"Content-Type":      {"application/json"},
			"User-Agent":        {"bench"},
			"Webhook-Id":        {id},
			"Webhook-Timestamp": {stamp},
			"Webhook-Signature": {"v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))},
		},
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}
	res, err := p.client.Do(req.WithContext(ctx))
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	if err == nil && res.StatusCode/100 != 2 {
		err = fmt.Errorf("status %d", res.StatusCode)
	}
	return err
}

// ceilingMain is the bare client: args are the sink's URLs and the goroutines. For
// each line "N" it posts N times.
func ceilingMain(args []string) error {
	workers, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	p, err := newPoster(args[0], workers)
	if err != nil {
		return err
	}
	body := bytes.Repeat([]byte("x"), bodySize)
	return listen(func(line string) (string, error) {
		n, err := strconv.ParseInt(line, 10, 64)
		if err != nil {
			return "", err
		}
		var next atomic.Int64
		return "done", inParallel(workers, func() error {
			for i := next.Add(1) - 1; i < n; i = next.Add(1) - 1 {
				id := fmt.Sprintf("dlv_%024d", i)
				if err := p.post(context.Background(), int(i)%len(p.urls), id, body); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// inParallel runs f in n goroutines and returns the first error.
func inParallel(n int, f func() error) error {
	var wg sync.WaitGroup
	errs := make(chan error, n)
	for range n {
		wg.Go(func() { errs <- f() })
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
