package gossip

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/federation/gossip/gossiptest"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"go.uber.org/goleak"
)

// On a real network, too, close says farewell within its bound, and leaves
// nothing behind.
func TestCloseEndsEveryGoroutine(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	p := newPond(t)

	var dialer net.Dialer
	overTCP := func(c *Config) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		c.Listener, c.Advertise = ln, ln.Addr().String()
		c.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", addr)
		}
		c.Timing = Timing{Gossip: 20 * time.Millisecond}
	}
	a := p.start(pondNode("alpha.test", "n1"), nil, overTCP)
	b := p.start(pondNode("beta.test", "n1"), []string{a.cfg.Advertise}, overTCP)
	within(t, 20*time.Second, "both see both", p.allSee(p.all))
	a.publish("x", []byte("hello"))
	within(t, 20*time.Second, "b hears a", func() bool { return len(b.heard("hello")) > 0 })
	start := time.Now()
	must(t, b.Close())
	within(t, 5*time.Second, "a knows that b left", func() bool { return len(a.alive()) == 1 })
	must(t, a.Close())
	must(t, a.Close())

	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("closing took %s", took)
	}

	a.publish("x", []byte("late")) // harmless

	if _, err := a.transport.DialAddressTimeout(memberlist.Address{Name: b.cfg.Advertise}, time.Second); err == nil {
		t.Error("a closed transport dials")
	}
}

// A bad configuration is named, and the listener doesn't stay open.
func TestConfigIsJudged(t *testing.T) {
	for field, spoil := range map[string]func(*Config){
		"Node":      func(c *Config) { c.Node = spiffeid.ID{} },
		"Dial":      func(c *Config) { c.Dial = nil },
		"Seeds":     func(c *Config) { c.Seeds = nil },
		"Advertise": func(c *Config) { c.Advertise = "[::]:8403" },
	} {
		l := gossiptest.NewNetwork().Listen("10.0.0.1:1")
		c := &Config{
			Node: pondNode("alpha.test", "n1"), Listener: l, Dial: gossiptest.NewNetwork().DialFrom("10.0.0.1:1"),
			Advertise: "10.0.0.1:1",
			ServerTLS: &tls.Config{}, ClientTLS: &tls.Config{}, Seeds: func() []string { return nil },
			Allow: func(spiffeid.ID) bool { return true },
		}
		spoil(c)

		if _, err := Start(c, nil); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}

		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: the listener is open", field)
		}
	}
}

// Sending never waits, whatever has become of the other end; what doesn't fit is
// dropped; and a link that goes nowhere is noticed.
func TestPacketsNeverBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPond(t)
		p.populate(1, "alpha.test", "beta.test")
		defer p.drain()
		a, b := p.all[0], p.all[1]
		within(t, 20*time.Second, "both see both", p.allSee(p.all))
		time.Sleep(10 * time.Second)

		if a.linkTo(b) == nil {
			t.Fatal("there is no link")
		}

		p.wire.SetCut(func(string, string) bool { return true })
		start := time.Now()

		big := bytes.Repeat([]byte{wireUser}, MaxMessage)
		for range 1000 {
			_, err := a.transport.WriteToAddress(big, memberlist.Address{Name: b.id.String()})
			must(t, err)
		}

		if time.Since(start) != 0 || a.count("queue_full") == 0 {
			t.Errorf("1000 packets took %s; dropped %d", time.Since(start), a.count("queue_full"))
		}

		within(t, 30*time.Second, "the link is given up", func() bool { return a.linkTo(b) == nil })
		p.wire.SetCut(nil)
		within(t, time.Minute, "there is a link again", func() bool { return a.linkTo(b) != nil })
	})
}

// A cut of which nothing but silence tells is noticed, too.
func TestASilentLinkIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPond(t)
		p.populate(1, "alpha.test", "beta.test")
		defer p.drain()
		a, b := p.all[0], p.all[1]
		within(t, 20*time.Second, "both see both", p.allSee(p.all))
		time.Sleep(10 * time.Second)
		before := a.linkTo(b)
		time.Sleep(5 * time.Minute)

		if before == nil || a.linkTo(b) != before {
			t.Error("a link in use didn't last")
		}

		p.wire.SetCut(func(string, string) bool { return true })
		within(t, 2*time.Minute, "the link is given up", func() bool { return a.linkTo(b) == nil })
		p.wire.SetCut(nil)
		within(t, time.Minute, "both see both again", p.allSee(p.all))
	})
}

// A link doesn't outlive the certificates that it was made with by over an hour.
func TestALinkHasAnAge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPond(t)
		p.populate(1, "alpha.test", "beta.test")
		defer p.drain()
		within(t, 20*time.Second, "both see both", p.allSee(p.all))
		time.Sleep(10 * time.Second)
		before := p.all[0].linkTo(p.all[1])
		time.Sleep(maxLinkAge + time.Minute)

		if now := p.all[0].linkTo(p.all[1]); now == before || before == nil {
			t.Errorf("the link is %p after an hour, and was %p", now, before)
		}

		if !p.allSee(p.all)() {
			t.Error("a new link cost a member")
		}
	})
}

// A link ends once the authority of the other end's certificate is replaced: nothing is sent over it
// and nothing taken from it.
//
// Requirement: TRUST-002
func TestALinkEndsWithItsAuthority(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPond(t)
		p.populate(1, "alpha.test", "beta.test")
		defer p.drain()
		a, b := p.all[0], p.all[1]
		within(t, 20*time.Second, "both see both", p.allSee(p.all))
		a.publish("x", []byte("before of a"))
		b.publish("y", []byte("before of b"))
		within(t, 10*time.Second, "both hear each other", func() bool {
			return len(b.heard("before of a")) > 0 && len(a.heard("before of b")) > 0
		})

		p.authorities.Replace(t, b.id.TrustDomain())
		a.publish("x", []byte("after of a"))
		b.publish("y", []byte("after of b"))
		time.Sleep(time.Minute)

		if a.contactWith(b) != nil && a.linkTo(b) != nil {
			t.Error("the link is still there")
		}

		if over := append(a.heard("after of b"), b.heard("after of a")...); len(over) > 0 {
			t.Errorf("over the link came %v", over)
		}
	})
}

// Callers that say nothing hold up nobody, and one node has a bounded number of
// streams.
func TestConnectionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPond(t)
		a := p.start(pondNode("alpha.test", "n1"), nil, nil)
		defer p.drain()

		dial := p.wire.DialFrom("10.9.9.9:1")
		for range maxHandshakes + 10 {
			if c, err := dial(t.Context(), a.address); err == nil {
				defer c.Close()
			}

			time.Sleep(time.Millisecond)
		}

		if n := a.count("too_many"); n != 10 {
			t.Errorf("%d silent callers were refused", n)
		}

		time.Sleep(handshakeTimeout)
		b := p.start(pondNode("beta.test", "n1"), []string{a.address}, nil)
		within(t, 10*time.Second, "both see both", p.allSee(p.all))

		before := a.count("too_many")
		for range maxExchangesEach + 2 {
			s, err := b.transport.dial(t.Context(), a.address, a.id, forExchange)
			must(t, err)
			defer b.transport.drop(s.raw)
		}

		time.Sleep(time.Second)

		if n := a.count("too_many") - before; n != 2 {
			t.Errorf("%d streams too many were refused", n)
		}
	})
}

// A readMesh collects what an inbox delivers.
type readMesh struct {
	Mesh
	got *[]string
}

// Deliver implements Mesh.
func (m *readMesh) Deliver(from spiffeid.ID, msg []byte) {
	*m.got = append(*m.got, from.Path()+" "+string(msg))
}

// MergeHeads implements Mesh.
func (m *readMesh) MergeHeads(from spiffeid.ID, heads [][]byte) { m.Deliver(from, heads[0]) }

// Who sends too much displaces nothing but their own.
//
// Requirement: MESH-006
func TestTheInboxIsFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dropped := 0

		var got []string
		log := slog.New(slog.DiscardHandler)
		box := newInbox(&Config{Panics: contain.New(log), Refused: func(string) { dropped++ }}, &readMesh{got: &got})
		loud := pondNode("alpha.test", "loud")
		quiet := pondNode("beta.test", "quiet")

		for i := range 1000 {
			box.put(loud, news{message: fmt.Append(nil, i)})
		}

		box.put(quiet, news{message: []byte("hear me")})
		box.put(quiet, news{heads: [][]byte{[]byte("old head")}})
		box.put(quiet, news{heads: [][]byte{[]byte("head")}})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go box.run(ctx)
		synctest.Wait()

		if len(got) != inboxEach+2 || dropped != 1000-inboxEach {
			t.Fatalf("%d dropped, got %v", dropped, got)
		}

		if got[1] != "/roster/node/quiet hear me" || got[3] != "/roster/node/quiet head" ||
			got[len(got)-1] != "/roster/node/loud 999" {
			t.Errorf("got %v", got)
		}
	})
}

func newPacketFilter() *packetFilter { return &packetFilter{stated: map[string]int64{}} }

// What only somebody hostile sends doesn't get as far as memberlist's parsers.
//
// Requirement: MESH-006, MESH-016
func TestThePacketFilter(t *testing.T) {
	from := pondNode("alpha.test", "n1")
	other := pondNode("beta.test", "n1").String()
	ping := message(wirePing, "SeqNo", 7, "Node", other, "SourceNode", from.String())
	user := []byte("\x08hello")
	dead := message(wireDead, "Incarnation", 3, "Node", other, "From", from.String()) // three members

	compound := func(parts ...[]byte) []byte { return joinCompound(parts) }
	for name, c := range map[string]struct {
		packet   []byte
		rest     []byte
		messages int
		err      error
	}{
		"a ping":          {packet: ping, rest: ping},
		"with a checksum": {packet: append([]byte{wireChecksum, 1, 2, 3, 4}, ping...), rest: ping},
		"a message":       {packet: user, messages: 1},
		"a message among others": {packet: compound(ping, user, dead, user), rest: compound(ping, dead),
			messages: 2},
		"nothing":              {packet: nil, err: errWire},
		"an empty part":        {packet: compound(ping, nil), err: errWire},
		"a truncated compound": {packet: compound(ping, dead)[:20], err: errWire},
		"a nested compound":    {packet: compound(ping, compound(ping)), err: errWire},
		"compression": {packet: compound(ping, []byte("\x09\x82\xa4Algo\x00\xa3Buf\xa1x")),
			err: errWire},
		"encryption":  {packet: []byte{10, 1, 2, 3}, err: errWire},
		"a label":     {packet: []byte{244, 1, 'x', 0}, err: errWire},
		"a push/pull": {packet: []byte{wirePushPull, 0x80}, err: errWire},
		"another's name": {packet: message(wirePing, "SeqNo", 7, "Node", other, "SourceNode", other),
			err: errClaim},
		"no name": {packet: message(wirePing, "SeqNo", 7, "Node", other), err: errClaim},
		"another's name, indirectly": {packet: message(wireIndirectPing, "Node", other, "SourceNode", other),
			err: errClaim},
		"a ping of nobody": {packet: message(wirePing, "SeqNo", 7, "Node", "", "SourceNode", from.String()),
			err: errWire},
		"a name twice": {packet: message(wirePing, "SourceNode", from.String(), "SourceNode", other,
			"Node", other), err: errWire},
		"an array like a map": {packet: append([]byte{wireDead, 0x93}, dead[2:]...), err: errWire},
		"a map in a map": {packet: append([]byte{wireDead, 0x84},
			append(bytes.Clone(dead[2:]), "\xa1X\x81\x01"...)...), err: errWire},
		"a fraction": {packet: append([]byte{wireDead, 0x84},
			append(bytes.Clone(dead[2:]), "\xa1X\xca\x3f\x80\x00\x00"...)...), err: errWire},
		"a claim below zero, in full": {packet: []byte("\x05\x82\xa4Node\xa1x\xabIncarnation\xd0\xff"), err: errWire},
		"an array for a map":          {packet: []byte{wirePing, 0x93, 1, 0xa1, 'x', 0}, err: errWire},
		"a claim about nobody":        {packet: message(wireDead, "Incarnation", 3), err: errWire},
		"a claim of no number":        {packet: message(wireDead, "Incarnation", "x", "Node", other), err: errWire},
		"16 KiB and 1": {packet: append([]byte{wireUser}, make([]byte, MaxMessage+1)...),
			err: errMessage},
		"16 KiB and 1 in a compound": {packet: compound(ping,
			append([]byte{wireUser}, make([]byte, MaxMessage+1)...)), err: errMessage},
		"16 KiB":                     {packet: append([]byte{wireUser}, make([]byte, MaxMessage)...), messages: 1},
		"half a compound's head":     {packet: []byte{wireCompound}, err: errWire},
		"a compound without lengths": {packet: []byte{wireCompound, 9, 0, 1}, err: errWire},
		"a ping of no text": {packet: message(wirePing, "Node", 7, "SourceNode", from.String()),
			err: errWire},
		"a claim below zero": {packet: []byte("\x05\x82\xa4Node\xa1x\xabIncarnation\xff"), err: errWire},
		"a claim beyond all": {
			packet: []byte("\x05\x82\xa4Node\xa1x\xabIncarnation\xcf\x00\x00\x00\x01\x00\x00\x00\x00"),
			err:    errWire,
		},
		"a number for a member":       {packet: []byte{wirePing, 0x81, 0x07, 0x07}, err: errWire},
		"a number cut short":          {packet: []byte{wireDead, 0x81, 0xa1, 'x', 0xce, 1}, err: errWire},
		"a length cut short":          {packet: []byte{wireDead, 0x81, 0xa1, 'x', 0xda, 1}, err: errWire},
		"a short length cut short":    {packet: []byte{wireDead, 0x81, 0xa1, 'x', 0xd9}, err: errWire},
		"a value that is missing":     {packet: []byte{wireDead, 0x81, 0xa1, 'x'}, err: errWire},
		"a message that isn't closed": {packet: []byte{wireAlive, 0x81, 0xda, 0xff, 0xff}, err: errWire},
	} {
		rest, messages, err := newPacketFilter().packet(from, bytes.Clone(c.packet))
		if !errors.Is(err, c.err) || !bytes.Equal(rest, c.rest) || len(messages) != c.messages {
			t.Errorf("%s: %x, %d messages, %v", name, rest, len(messages), err)
		}
	}
}

// Requirement: MESH-006
func TestThePacketFilterOfStreams(t *testing.T) {
	from := pondNode("alpha.test", "n1")
	other := pondNode("beta.test", "n1").String()
	header := func(nodes, user int) []byte { return message(wirePushPull, "Nodes", nodes, "UserStateLen", user) }
	versioned := func(versions ...byte) []byte {
		return message(0, "Name", other, "Incarnation", 1, "Vsn", versions)[1:]
	}

	node := versioned(1, 5, 2, 0, 0, 0)
	for name, c := range map[string]struct {
		msg []byte
		err error
	}{
		"a push/pull":          {append(header(2, 0), append(node, node...)...), nil},
		"nothing":              {nil, errWire},
		"room for a million":   {header(1<<20, 0), errWire},
		"one too many":         {append(header(maxPoolSize+1, 0), bytes.Repeat(node, maxPoolSize+1)...), errWire},
		"as many as may be":    {append(header(maxPoolSize, 0), bytes.Repeat(node, maxPoolSize)...), nil},
		"less than none":       {[]byte("\x06\x82\xa5Nodes\xff\xacUserStateLen\x00"), errWire},
		"no number of members": {[]byte("\x06\x82\xa5Nodes\xa1x\xacUserStateLen\x00"), errWire},
		"user state to come":   {header(0, 5), errWire},
		"fewer than it says":   {append(header(2, 0), node...), errWire},
		"more than it says":    {append(header(1, 0), append(node, node...)...), errWire},
		"user state":           {append(header(0, 5), "hello"...), errWire},
		"a node of no version": {append(header(1, 0), message(0, "Name", other, "Incarnation", 1)[1:]...), errWire},
		"versions cut short":   {append(header(1, 0), versioned(1, 5, 2, 0)...), errWire},
		"a version too many":   {append(header(1, 0), versioned(1, 5, 2, 0, 0, 0, 0)...), errWire},
		"a number for versions": {append(header(1, 0), message(0, "Name", other, "Incarnation", 1, "Vsn", 7)[1:]...),
			errWire},
		"a user message":         {[]byte("\x08\x81\xaaUserMsgLen\xce\x01\x00\x00\x00"), errWire},
		"compression":            {[]byte("\x09\x82\xa4Algo\x00\xa3Buf\xa1x"), errWire},
		"a ping":                 {message(wirePing, "Node", other, "SourceNode", from.String()), nil},
		"a ping in another name": {message(wirePing, "Node", other, "SourceNode", other), errClaim},
	} {
		if err := newPacketFilter().stream(from, c.msg); !errors.Is(err, c.err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What is said of a third node is kept to what it may be by its own word.
//
// Requirement: MESH-016
func TestThePacketFilterBoundsIncarnations(t *testing.T) {
	liar, victim := pondNode("alpha.test", "liar"), pondNode("beta.test", "n1")
	s := newPacketFilter()
	s.self = pondNode("gamma.test", "me").String()

	incarnation := func(from, of spiffeid.ID, n int) int64 {
		rest, _, err := s.packet(from, message(wireAlive, "Node", of.String(), "Incarnation", n))
		must(t, err)
		fields, _, err := wireMap(rest[1:])
		must(t, err)

		return fields["Incarnation"].value.(int64)
	}
	if n := incarnation(liar, victim, math.MaxUint32); n != incarnationSlack {
		t.Errorf("a liar is believed up to %d", n)
	}

	if n := incarnation(victim, victim, 5000); n != 5000 {
		t.Errorf("the node's own word became %d", n)
	}

	if n := incarnation(liar, victim, math.MaxUint32); n != 5000+incarnationSlack {
		t.Errorf("a liar is then believed up to %d", n)
	}

	if n := incarnation(liar, victim, 5001); n != 5001 {
		t.Errorf("what may be so became %d", n)
	}

	if n := incarnation(liar, spiffeid.RequireFromString(s.self), 77777); n != 77777 {
		t.Errorf("what is said of us became %d, and couldn't be contradicted", n)
	}

	narrow := []byte("\x04\x82\xa4Node\xa1x\xabIncarnation\x7f") // one byte
	if _, _, err := s.packet(liar, narrow); err != nil || narrow[len(narrow)-1] != 0x7f {
		t.Errorf("%x, %v", narrow, err)
	}

	incarnation(liar, liar, 1)

	if n := incarnation(liar, victim, math.MaxUint32); n != 5000+incarnationSlack {
		t.Errorf("another node's word took the place of the victim's: it may be %d", n)
	}

	for i := range 2 * maxStated {
		of := pondNode("alpha.test", fmt.Sprint("n", i))
		incarnation(of, of, 1)
	}

	if n := len(s.stated); n > maxStated {
		t.Errorf("the words of %d nodes are remembered", n)
	}
}

// Whatever passes the filter passes again, unchanged, and holds no messages.
func FuzzPacketFilter(f *testing.F) {
	from := pondNode("alpha.test", "n1")
	f.Add(message(wirePing, "SeqNo", 7, "Node", "x", "SourceNode", from.String()))
	f.Add(joinCompound([][]byte{message(wireDead, "Incarnation", 1<<31, "Node", "x"), []byte("\x08hello"),
		message(wireAck, "SeqNo", 1)}))
	f.Add(append([]byte{wireChecksum, 0, 0, 0, 0}, message(wireAlive, "Incarnation", 1, "Node", from.String())...))
	f.Fuzz(func(t *testing.T, packet []byte) {
		s := newPacketFilter()

		rest, messages, err := s.packet(from, packet)
		for _, m := range messages {
			if len(m) > MaxMessage {
				t.Errorf("a message of %d bytes", len(m))
			}
		}

		if err != nil || rest == nil {
			return
		}

		kept := bytes.Clone(rest)

		again, none, err := s.packet(from, rest)
		if err != nil || none != nil || !bytes.Equal(again, kept) {
			t.Errorf("%x became %x, %d messages, %v", kept, again, len(none), err)
		}
	})
}

// The heads of an exchange are bounded together, and what is written can be read.
//
// Requirement: MESH-006
func TestAnExchangeHoldsAsManyHeadsAsItMay(t *testing.T) {
	largest := bytes.Repeat([]byte{'h'}, MaxHead)
	written := appendHeads(nil, slices.Repeat([][]byte{largest}, maxHeads))

	heads, err := readHeads(bytes.NewReader(written))
	if err != nil || len(heads) != maxAllHeads/MaxHead {
		t.Errorf("%d heads, %v", len(heads), err)
	}

	// One more than fits, as only a hostile node writes it.
	over := binary.BigEndian.AppendUint16(nil, uint16(len(heads)+1))
	over = append(over, written[2:]...)

	over = append(binary.BigEndian.AppendUint16(over, MaxHead), largest...)
	if _, err := readHeads(bytes.NewReader(over)); !errors.Is(err, errState) {
		t.Errorf("%d bytes of heads: %v", len(over), err)
	}
}

// Requirement: MESH-006
func FuzzExchange(f *testing.F) {
	f.Add([]byte{0, 1, 0, 3, 'a', 'b', 'c'})
	f.Fuzz(func(t *testing.T, b []byte) {
		heads, err := readHeads(bytes.NewReader(b))
		if err != nil {
			return
		}

		if again := appendHeads(nil, heads); len(heads) > maxHeads || !bytes.HasPrefix(b, again) {
			t.Errorf("%d heads, %x", len(heads), again)
		}
	})
}

func TestFramesAreBounded(t *testing.T) {
	for _, f := range [][]byte{frame(framePacket, make([]byte, maxPacket+1)), frame(frameAsk, []byte("x")),
		frame(9, nil)} {
		if _, _, err := readFrame(io.MultiReader(bytes.NewReader(f[:headerSize]), neverRead{t})); !errors.Is(err,
			errFrame) {
			t.Errorf("%x: %v", f[:headerSize], err)
		}
	}
}

type neverRead struct{ t *testing.T }

func (n neverRead) Read([]byte) (int, error) {
	n.t.Error("the body was read")
	return 0, io.EOF
}

// A domain of many nodes is read no faster than one of three is, however much each of
// them sends; who sends little isn't kept waiting by them.
//
// Requirement: MESH-026
func TestADomainIsReadAtAPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPond(t)
		defer p.drain()
		a := p.start(pondNode("alpha.test", "n1"), nil, nil)
		link := func(f *frog) *secured {
			s, err := f.transport.dial(t.Context(), a.address, a.id, forPackets)
			must(t, err)

			return s
		}

		const nodes, long = 12, 30 * time.Second
		junk := frame(framePacket, bytes.Repeat([]byte{0xff}, 16<<10))

		var (
			flood sync.WaitGroup
			links []*secured
		)
		for i := range nodes {
			s := link(p.start(pondNode("gamma.test", fmt.Sprint("n", i)), nil, nil))
			links = append(links, s)
			flood.Go(func() {
				for {
					if _, err := s.Write(junk); err != nil {
						return
					}
				}
			})
		}

		honest := link(p.start(pondNode("beta.test", "n1"), nil, nil))
		time.Sleep(long)
		_, err := honest.Write([]byte{framePacket, 0xff, 0xff, 0xff}) // longer than any may be, and counted as that
		must(t, err)
		within(t, 100*time.Millisecond, "who sends little is read at once", func() bool {
			return a.count("too_large") == 1
		})

		for _, s := range links {
			_ = s.raw.Close()
		}

		flood.Wait()

		most := (domainBurst + domainBytes*int(long/time.Second)) / len(junk)
		if got := a.count("malformed"); got < most/2 || got > most+2*nodes {
			t.Errorf("%d frames of the flood were read; at most %d may be", got, most)
		}
	})
}

// Streams are read at the pace of links: who has many, and long ones, gains nothing.
//
// Requirement: MESH-026
func TestStreamsAreReadAtAPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPond(t)
		defer p.drain()
		a := p.start(pondNode("alpha.test", "n1"), nil, nil)
		junk := binary.BigEndian.AppendUint32(nil, maxState)
		junk = append(append(junk, wirePushPull), make([]byte, maxState-1)...)

		const nodes, each = 3, 8
		began := time.Now()

		var flood sync.WaitGroup
		for i := range nodes {
			f := p.start(pondNode("gamma.test", fmt.Sprint("n", i)), nil, nil)
			flood.Go(func() {
				for range each {
					s, err := f.transport.dial(t.Context(), a.address, a.id, forExchange)
					if err != nil {
						t.Error(err)
						return
					}

					_, _ = s.Write(junk)
					_, _ = io.Copy(io.Discard, s)
					f.transport.drop(s.raw)
				}
			})
		}

		flood.Wait()

		least := (nodes*each*maxState - domainBurst) / domainBytes
		if time.Since(began) < time.Duration(least)*time.Second {
			t.Errorf("%d streams of %d bytes were read in %v; it takes %d s", nodes*each, maxState, time.Since(began),
				least)
		}
	})
}

// A push/pull that lists a member with too few versions is refused before
// memberlist's parser, which would end the program over it.
//
// Requirement: MESH-016
func TestAShortListOfVersionsEndsNoNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPond(t)
		defer p.drain()
		victim := p.start(pondNode("alpha.test", "n1"), nil, nil)
		liar := p.start(pondNode("gamma.test", "n1"), nil, nil)

		state := message(wirePushPull, "Nodes", 1, "UserStateLen", 0)
		state = append(state, message(0, "Name", liar.id.String(), "Incarnation", 1, "State", 0, "Vsn",
			[]byte{1, 5})[1:]...)
		framed := append(binary.BigEndian.AppendUint32(nil, uint32(len(state))), state...)
		framed = appendHeads(framed, nil)

		stream, err := liar.transport.dial(t.Context(), victim.address, victim.id, forExchange)
		must(t, err)
		_, err = stream.Write(framed)
		must(t, err)
		_, _ = io.Copy(io.Discard, stream)
		liar.transport.drop(stream.raw)

		if members := victim.Members(); len(members) != 1 || members[0].ID != victim.id {
			t.Errorf("members are %v", members)
		}
	})
}
