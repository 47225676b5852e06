package gateway_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/gateway"
)

// rebinding is a resolver that gives every name one address after the other, and the
// last for good: what was looked at before is no good.
func rebinding(to ...netip.Addr) (*net.Resolver, *atomic.Int32) {
	var asked atomic.Int32
	answer := func(query []byte) []byte {
		var p dnsmessage.Parser

		h, err := p.Start(query)
		if err != nil {
			return nil
		}

		q, err := p.Question()
		if err != nil {
			return nil
		}

		b := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: h.ID, Response: true, RecursionAvailable: true})
		_ = b.StartQuestions()
		_ = b.Question(q)

		_ = b.StartAnswers()
		if q.Type == dnsmessage.TypeA {
			n := min(int(asked.Add(1)), len(to))
			_ = b.AResource(dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class},
				dnsmessage.AResource{A: to[n-1].As4()})
		}

		msg, _ := b.Finish()

		return msg
	}

	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go func() {
			defer server.Close()

			for {
				var size [2]byte
				if _, err := io.ReadFull(server, size[:]); err != nil {
					return
				}

				query := make([]byte, binary.BigEndian.Uint16(size[:]))
				if _, err := io.ReadFull(server, query); err != nil {
					return
				}

				msg := answer(query)
				if _, err := server.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(msg))),
					msg...)); err != nil {
					return
				}
			}
		}()

		return client, nil
	}}, &asked
}

// A name that leads to an address that is closed is not connected to, whatever it
// led to before.
//
// Requirement: WOA-018
func TestRebinding(t *testing.T) {
	reached := false
	authority := newCA(t, "")
	inner := serve(t, authority.leaf(t, "agent.test", spiffeid.ID{}),
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			reached = true
		}))

	_, port, _ := net.SplitHostPort(inner.Listener.Addr().String())
	for _, to := range []string{"127.0.0.1", "169.254.169.254", "10.0.0.1", "100.100.100.200", "168.63.129.16"} {
		resolver, asked := rebinding(netip.MustParseAddr(to))
		g := newGuard(t, gateway.GuardConfig{Roots: authority.pool(), Resolver: resolver})
		_, err := fetch(t, g, "https://agent.test:"+port+"/", gateway.Target{})
		wantRule(t, to, err, gateway.RuleAddress)

		if asked.Load() == 0 || reached {
			t.Errorf("%s: the name was resolved %d times; reached: %v", to, asked.Load(), reached)
		}
	}

	turned, _ := rebinding(netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("10.0.0.1"))

	g := newGuard(t, gateway.GuardConfig{Allow: loopback, Roots: authority.pool(), Resolver: turned})
	if _, err := fetch(t, g, "https://agent.test:"+port+"/", gateway.Target{}); err != nil || !reached {
		t.Fatalf("where it is at first: %v", err)
	}

	g.Close() // the connection is not what is judged: the next one is to elsewhere
	_, err := fetch(t, g, "https://agent.test:"+port+"/", gateway.Target{})
	wantRule(t, "where it is then", err, gateway.RuleAddress)
	resolver, _ := rebinding(netip.MustParseAddr("127.0.0.1"))

	g = newGuard(t, gateway.GuardConfig{Roots: authority.pool(), Resolver: resolver, Hosts: []string{"agent.test"}})
	if _, err := fetch(t, g, "https://agent.test:"+port+"/", gateway.Target{}); err != nil || !reached {
		t.Errorf("a host on the allow-list: %v", err)
	}

	metadata, _ := rebinding(netip.MustParseAddr("169.254.169.254"))
	g = newGuard(t, gateway.GuardConfig{Resolver: metadata, Hosts: []string{"agent.test"}})
	_, err = fetch(t, g, "https://agent.test:"+port+"/", gateway.Target{})
	wantRule(t, "metadata by a host on the allow-list", err, gateway.RuleAddress)
}

// stillCalling returns the goroutines that are the guard's, or of connections to
// servers that it made.
func stillCalling() (all []string) {
	text := make([]byte, 64<<20)

	text = text[:runtime.Stack(text, true)]
	for _, g := range strings.Split(string(text), "\n\n") {
		for _, mark := range []string{"gateway.(*Guard)", "gateway.guarded", "http.(*persistConn)",
			"http.(*Transport)", "http.(*http2ClientConn)", "http2.(*ClientConn)"} {
			if strings.Contains(g, mark) {
				all = append(all, g)
				break
			}
		}
	}

	return all
}

// A thousand endpoints of the worst kinds: none is reached that must not be, none
// costs more than its bounds, and when its time is over no goroutine is held by one,
// though each would go on for as long as it is listened to.
//
// Requirement: WOA-018
func TestHostileEndpoints(t *testing.T) {
	before := goleak.IgnoreCurrent()

	var bomb bytes.Buffer

	packed := gzip.NewWriter(&bomb)
	packed.Write(make([]byte, 4<<20))
	packed.Close()

	n := 1000
	if testing.Short() {
		n = 100
	}

	authority, stranger := newCA(t, ""), newCA(t, "")
	reached := atomic.Int32{}
	closed := serve(t, stranger.leaf(t, "127.0.0.1", spiffeid.ID{}),
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			reached.Add(1)
		}))
	hostile := serve(t, authority.leaf(t, "127.0.0.1", spiffeid.ID{}),
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/silent":
				<-r.Context().Done()
			case "/slow":
				for r.Context().Err() == nil {
					io.WriteString(w, " ")
					w.(http.Flusher).Flush()

					select {
					case <-r.Context().Done():
					case <-time.After(20 * time.Millisecond):
					}
				}
			case "/bomb":
				w.Header().Set("Content-Encoding", "gzip")

				for r.Context().Err() == nil {
					if _, err := w.Write(bomb.Bytes()); err != nil { // members of one file
						return
					}
				}
			case "/away":
				http.Redirect(w, r, closed.URL, http.StatusTemporaryRedirect)
			case "/metadata":
				http.Redirect(w, r, "https://169.254.169.254/latest/meta-data/", http.StatusFound)
			}
		}))
	headers := serve(t, authority.leaf(t, "127.0.0.1", spiffeid.ID{}),
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for i := range 100 {
				w.Header().Set("X-"+strconv.Itoa(i), strings.Repeat("x", 1000))
			}
		}))

	tarpit, err := net.Listen("tcp", "127.0.0.1:0") // takes connections, and says nothing
	must(t, err)
	defer tarpit.Close()
	kinds := []struct {
		url  string
		rule gateway.Rule // "" where any error will do
	}{
		{hostile.URL + "/silent", gateway.RuleTime}, {hostile.URL + "/slow", gateway.RuleTime},
		{hostile.URL + "/bomb", gateway.RuleSize},
		{headers.URL, ""}, {hostile.URL + "/away", gateway.RuleRedirect},
		{hostile.URL + "/metadata", gateway.RuleRedirect},
		{closed.URL, gateway.RuleCertificate}, {"https://" + tarpit.Addr().String(), gateway.RuleTime},
		{"https://169.254.169.254/", gateway.RuleAddress}, {"https://[::ffff:10.0.0.1]/", gateway.RuleAddress},
		{"http://127.0.0.1/", gateway.RuleScheme}, {"https://127.0.0.1:22/", gateway.RulePort},
		{"https://rebound.test:8443/", gateway.RuleAddress},
	}
	rebound, _ := rebinding(netip.MustParseAddr("10.0.0.1"))
	g := gateway.NewGuard(gateway.GuardConfig{Allow: loopback, Roots: authority.pool(), Timeout: 3 * time.Second,
		Resolver: rebound})

	var wg sync.WaitGroup

	turn := make(chan struct{}, 100)
	for i := range n {
		turn <- struct{}{}
		wg.Go(func() {
			defer func() { <-turn }()
			k := kinds[i%len(kinds)]

			_, err := fetch(t, g, k.url, gateway.Target{MaxBody: 256 << 10, Timeout: time.Second})
			if rule := gateway.RuleOf(err); err == nil || k.rule != "" && rule != k.rule && rule != gateway.RuleTime {
				t.Errorf("%s: %v, want it refused by %q", k.url, err, k.rule)
			}
		})
	}

	wg.Wait()

	if reached.Load() > 0 {
		t.Errorf("%d requests reached a server that nobody vouches for", reached.Load())
	}

	g.Close()

	again := time.Tick(50 * time.Millisecond)
	for deadline := time.Now().Add(90 * time.Second); len(stillCalling()) > 0; <-again {
		if time.Now().After(deadline) { // a connection that came too late for Close idles for a minute
			t.Fatalf("goroutines that are held by servers: %s", strings.Join(stillCalling(), "\n\n"))
		}
	}

	hostile.Close()
	closed.Close()
	headers.Close()

	if err := goleak.Find(before); err != nil {
		t.Errorf("left behind: %v", err)
	}
}
