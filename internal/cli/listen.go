package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/fanout/fanout/client"
	"github.com/fanout/fanout/internal/subscriber"
)

// listenCmd is an endpoint to look through.
type listenCmd struct {
	Addr       string   `default:"127.0.0.1:0" help:"Loopback address to listen on; default any free port of 127.0.0.1." placeholder:"IP:PORT"`
	Register   []string `help:"Register this receiver as a subscriber of these types, and delete that at the end." placeholder:"TYPE"`
	URL        string   `help:"Where the service reaches this receiver, as through a tunnel; default its own address." name:"url" placeholder:"URL"`
	Account    *string  `help:"Account of the subscriber that --register makes."`
	SecretFile string   `help:"File with the signing secret to verify by; or set FANOUT_SECRET. --register has one made." placeholder:"FILE" type:"path"`
	BodyLimit  int      `default:"2048" help:"Show so many bytes of a body." placeholder:"2048"`
	manners
}

// secretVariable holds the signing secret.
const secretVariable = "FANOUT_SECRET"

// Run listens until ctx ends, which is its normal end.
func (l *listenCmd) Run(ctx context.Context, s *session) error {
	if err := l.check(); err != nil {
		return err
	}
	secret, err := verifyingSecret(l.SecretFile)
	if err != nil {
		return err
	}
	ln, err := l.bind(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = ln.Close() }()
	own := "http://" + ln.Addr().String() + "/"
	if l.URL == "" {
		l.URL = own
	}
	leave := func() error { return nil }
	if len(l.Register) > 0 {
		made, err := l.register(ctx, s, secret)
		if err != nil {
			return err
		}
		secret = made.Secret
		leave = func() error { return unregister(ctx, s, made.ID) }
	}
	s.notef("Listening on %s; Ctrl-C ends it.", own)
	if secret == "" {
		s.notef("No secret: signatures are not verified. Set %s, or --secret-file, or --register.", secretVariable)
	}
	return newReceiver(s, l, secret).serve(ctx, ln, leave)
}

func (l *listenCmd) check() error {
	addr, err := netip.ParseAddrPort(l.Addr)
	switch {
	case err != nil || !addr.Addr().Unmap().IsLoopback():
		return usage("--addr %q is no loopback ip:port, such as 127.0.0.1:8089: this receiver is for nobody else", l.Addr)
	case l.BodyLimit < 0:
		return usage("--body-limit must be 0 or more")
	case l.URL != "" && len(l.Register) == 0:
		return usage("--url is for --register")
	}
	return l.manners.check()
}

func (l *listenCmd) bind(ctx context.Context) (net.Listener, error) {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", l.Addr)
	if err != nil {
		return nil, fmt.Errorf("%w (choose another by --addr)", err)
	}
	return ln, nil
}

// verifyingSecret reads the secret, and refuses one that no receiver verifies by
// before the first webhook is lost on it.
func verifyingSecret(file string) (string, error) {
	secret, err := secretFrom(file, secretVariable)
	if err != nil || secret == "" || strings.HasPrefix(secret, "whpk_") {
		return secret, err
	}
	_, private, err := subscriber.Secret{Value: secret}.Keys()
	switch {
	case err != nil:
		return "", usage("the signing secret cannot be used: %v", err)
	case private != nil:
		return "", usage("the signing secret is a private whsk_ key: a receiver verifies by its public whpk_ key")
	}
	return secret, nil
}

// register makes a subscriber of this receiver. It is not broken off by Ctrl-C: then
// nobody would know what to delete.
func (l *listenCmd) register(ctx context.Context, s *session, secret string) (client.CreatedSubscriber, error) {
	in := client.SubscriberInput{
		Account: l.Account, Name: new("fanout listen"), URL: &l.URL, Filter: &client.Filter{Types: l.Register},
	}
	if secret != "" {
		in.Secret = &secret
	}
	made, err := ask(context.WithoutCancel(ctx), s, func(ctx context.Context, c *client.Client) (client.CreatedSubscriber, error) {
		return c.CreateSubscriber(ctx, in)
	})
	var p *client.Problem
	if errors.As(err, &p) && pointsAt(p, "/url") {
		s.notef("The service calls no loopback address unless it is told to: `fanout dev` does, `fanout serve` and the dispatcher with " +
			"--allow-http --allow-any-port --allow-cidr=127.0.0.0/8; or give a tunnel's public address by --url.")
	}
	if err == nil {
		s.notef("Registered as %s for %s.", made.ID, strings.Join(made.Filter.Types, ", "))
	}
	return made, err
}

func pointsAt(p *client.Problem, pointer string) bool {
	for _, e := range p.Errors {
		if e.Pointer == pointer {
			return true
		}
	}
	return false
}

// unregisterTime bounds the end after Ctrl-C.
const unregisterTime = 10 * time.Second

// unregister deletes the subscriber while the receiver still answers.
func unregister(ctx context.Context, s *session, id string) error {
	gone, err := askFor(context.WithoutCancel(ctx), s, unregisterTime, func(ctx context.Context, c *client.Client) (client.DeletedSubscriber, error) {
		return c.DeleteSubscriber(ctx, id, false, client.If{})
	})
	if err != nil {
		s.notef("The subscriber %s is still there. To delete it: fanout subscribers rm %s", id, id)
		return err
	}
	s.notef("Deleted %s; %s cancelled.", id, count(gone.Cancelled+gone.Remaining, "delivery that waited was", "deliveries that waited were"))
	return nil
}

// serve answers until ctx ends, or nobody reads what is shown. It leaves before it
// closes: a delivery would else find nobody there.
func (r *receiver) serve(ctx context.Context, ln net.Listener, leave func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.stop = cancel
	srv := &http.Server{
		Handler: r, ReadHeaderTimeout: readTime, ReadTimeout: readTime,
		BaseContext: func(net.Listener) context.Context { return ctx }, // its end lets go of who hangs
	}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ln) }()
	select {
	case err := <-done:
		return errors.Join(fmt.Errorf("receive: %w", err), leave())
	case <-ctx.Done():
	}
	err := leave()
	_ = srv.Close() // a webhook that is cut off here is sent again, or its delivery cancelled
	if ended := <-done; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	r.total()
	return err
}
