package boot

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
)

// ErrNotLoopback refuses an address that other machines could reach, for a command
// that asks for no key.
var ErrNotLoopback = errors.New("not a loopback address: no key is asked for here, so whoever " +
	"reached it could post events and read deliveries; use 127.0.0.1 or [::1]")

// ErrNoKey refuses to serve other machines while there is no key.
var ErrNoKey = errors.New("it is reached by other machines, and there is no key to ask for: set FANOUT_ADMIN_KEY " +
	"(or --admin-key-file) to 32 random characters or more, such as what openssl rand -hex 32 prints, " +
	"and make other keys with it by POST /v1/keys; or listen on 127.0.0.1 or [::1]")

// Address is an ip:port. A name is none, localhost included: it is what the hosts
// file makes of it. The rule sits in the parsing, because kong validates no value
// that comes from the environment.
type Address string

// UnmarshalText refuses what is no ip:port.
func (a *Address) UnmarshalText(b []byte) error {
	host, _, err := net.SplitHostPort(string(b))
	if err != nil {
		return fmt.Errorf("want ip:port: %w", err)
	}
	if _, err := netip.ParseAddr(host); err != nil {
		return fmt.Errorf("%q: want ip:port, such as 127.0.0.1:8080, or 0.0.0.0:8080 for every network", b)
	}
	*a = Address(b)
	return nil
}

// Bind opens the listener.
func (a *Address) Bind(ctx context.Context) (net.Listener, error) {
	if err := a.UnmarshalText([]byte(*a)); err != nil { // it may not have come from a flag
		return nil, err
	}
	return new(net.ListenConfig).Listen(ctx, "tcp", string(*a))
}

// Bound is the address as it was given, with the port that was bound: a listener says
// [::] of 0.0.0.0, which is another address to whoever reads it.
func (a *Address) Bound(ln net.Listener) string {
	host, _, err := net.SplitHostPort(string(*a))
	_, port, bad := net.SplitHostPort(ln.Addr().String())
	if err != nil || bad != nil {
		return ln.Addr().String()
	}
	return net.JoinHostPort(host, port)
}

// OnLoopback says whether only this machine reaches a listener.
func OnLoopback(ln net.Listener) bool {
	at, err := netip.ParseAddrPort(ln.Addr().String())
	return err == nil && at.Addr().Unmap().IsLoopback()
}

// Loopback is an Address that only this machine reaches.
type Loopback Address

// UnmarshalText returns ErrNotLoopback for any other address.
func (l *Loopback) UnmarshalText(b []byte) error {
	host, _, err := net.SplitHostPort(string(b))
	if err != nil {
		return fmt.Errorf("want ip:port: %w", err)
	}
	if ip, err := netip.ParseAddr(host); err != nil || !ip.Unmap().IsLoopback() {
		return fmt.Errorf("%q: %w", b, ErrNotLoopback)
	}
	*l = Loopback(b)
	return nil
}

// Bind opens the listener.
func (l *Loopback) Bind(ctx context.Context) (net.Listener, error) {
	if err := l.UnmarshalText([]byte(*l)); err != nil { // it may not have come from a flag
		return nil, err
	}
	return (*Address)(l).Bind(ctx)
}

// Access says who may call the API.
type Access struct {
	AdminKey     string  `env:"FANOUT_ADMIN_KEY" help:"Key of the first admin, at least 32 characters, to make others with; given by the variable, in --config or by --admin-key-file, and refused on the command line, which other users see." secret:"true" placeholder:"SECRET"`
	AdminKeyFile string  `env:"FANOUT_ADMIN_KEY_FILE" help:"File that holds it." placeholder:"FILE"`
	KeyRate      float64 `default:"2000" env:"FANOUT_KEY_RATE" help:"Requests a second that this process takes of a key without a rate of its own, twice as many at once; 0 for no limit."`

	// Keyless takes who shows no key for an admin, whether there are keys or not. It
	// is for loopback alone.
	Keyless bool `kong:"-"`
}

// Bootstrap is the first admin's key, "" if there is none. Its errors do not show it.
func (a Access) Bootstrap() (string, error) {
	if a.AdminKeyFile == "" {
		return a.AdminKey, nil
	}
	if a.AdminKey != "" {
		return "", errors.New("both --admin-key and --admin-key-file are set")
	}
	b, err := os.ReadFile(a.AdminKeyFile)
	if err != nil {
		return "", fmt.Errorf("read the admin key: %w", err)
	}
	key := strings.TrimSpace(string(b))
	if key == "" { // an empty file is no wish to have none
		return "", fmt.Errorf("read the admin key: %s is empty", a.AdminKeyFile)
	}
	return key, nil
}
