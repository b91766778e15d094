//go:build chaos

package chaos

import (
	"net"
	"sync"
	"time"
)

// mode is what a proxy does to what passes through it.
type mode string

const (
	pass mode = "pass"
	// cut closes every connection, and each new one at once.
	cut mode = "cut"
	// silent accepts connections and forwards nothing. What was on its way is
	// forwarded when the mode ends, as a network does that comes back: requests
	// arrive late that their senders gave up long ago.
	silent mode = "silent"
	// stalled lets connections be that stand, and answers no new one: the
	// handshake never ends.
	stalled mode = "stalled"
	// slow delays every piece, in both directions.
	slow mode = "slow"
	// deaf passes requests on and drops the replies, then closes: each command is
	// executed and its sender never knows.
	deaf mode = "deaf"
)

// proxy stands between one process and Redis.
type proxy struct {
	ln     net.Listener
	target string

	mu      sync.Mutex
	mode    mode
	delay   time.Duration
	changed chan struct{} // closed when the mode changes
	links   map[*link]bool
	work    sync.WaitGroup
}

// link is one connection through a proxy.
type link struct {
	client, server *net.TCPConn
	gone           chan struct{}
	once           sync.Once
	late           bool // it came while the mode was stalled
}

func (l *link) close() {
	l.once.Do(func() {
		close(l.gone)
		_ = l.client.Close()
		_ = l.server.Close()
	})
}

// startProxy listens on a port of its own until close.
func startProxy(target string) (*proxy, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{ln: ln, target: target, mode: pass, changed: make(chan struct{}), links: map[*link]bool{}}
	p.work.Go(p.accept)
	return p, nil
}

func (p *proxy) addr() string { return p.ln.Addr().String() }

func (p *proxy) close() {
	_ = p.ln.Close()
	p.set(cut, 0)
	p.work.Wait()
}

// set changes the mode; delay is that of slow.
func (p *proxy) set(m mode, delay time.Duration) {
	p.mu.Lock()
	p.mode, p.delay = m, delay
	close(p.changed)
	p.changed = make(chan struct{})
	p.mu.Unlock()
	if m == cut {
		p.drop()
	}
}

func (p *proxy) drop() {
	for _, l := range p.all() {
		l.close()
	}
}

// halve ends one direction of every connection and leaves the other open.
func (p *proxy) halve(towardsClient bool) {
	for _, l := range p.all() {
		if towardsClient {
			_ = l.client.CloseWrite()
		} else {
			_ = l.server.CloseWrite()
		}
	}
}

func (p *proxy) all() []*link {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]*link, 0, len(p.links))
	for l := range p.links {
		all = append(all, l)
	}
	return all
}

func (p *proxy) now() (mode, time.Duration, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mode, p.delay, p.changed
}

func (p *proxy) accept() {
	for {
		c, err := p.ln.Accept()
		if err != nil {
			return
		}
		p.work.Go(func() { p.serve(c.(*net.TCPConn)) })
	}
}

// serve forwards one connection until either side ends it.
func (p *proxy) serve(client *net.TCPConn) {
	m, _, _ := p.now()
	if m == cut {
		_ = client.Close()
		return
	}
	c, err := net.DialTimeout("tcp", p.target, 5*time.Second)
	if err != nil {
		_ = client.Close() // Redis is down: that is how its clients see it
		return
	}
	l := &link{client: client, server: c.(*net.TCPConn), gone: make(chan struct{}), late: m == stalled}
	p.mu.Lock()
	p.links[l] = true
	p.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { p.forward(l, l.client, l.server, false) })
	both.Go(func() { p.forward(l, l.server, l.client, true) })
	both.Wait()
	l.close()
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

// forward copies one direction. The end of it ends the other one too, but for the
// half-closes that are made on purpose.
func (p *proxy) forward(l *link, from, to *net.TCPConn, replies bool) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && !p.pass(l, to, buf[:n], replies) {
			l.close()
			return
		}
		if err != nil {
			if replies {
				l.close()
			} else {
				_ = to.CloseWrite()
			}
			return
		}
	}
}

// pass writes a piece when, and if, the mode lets it.
func (p *proxy) pass(l *link, to *net.TCPConn, piece []byte, replies bool) bool {
	for {
		m, delay, changed := p.now()
		switch {
		case m == silent, m == stalled && l.late:
			select {
			case <-changed:
				continue
			case <-l.gone:
				return false
			}
		case m == slow:
			select {
			case <-time.After(delay):
			case <-l.gone:
				return false
			}
		case m == deaf && replies:
			return false
		}
		_, err := to.Write(piece)
		return err == nil
	}
}
