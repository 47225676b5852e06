package gossip

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/federation/gossip/gossiptest"
	"github.com/roster-mesh/roster/limit"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"go.uber.org/goleak"
)

// On a real network, too, close says farewell within its bound, and leaves
// nothing behind.
func TestCloseEndsEveryGoroutine(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent(),
		goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).probeNode")) // ends with its interval
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

	if _, err := a.transport.greet(b.cfg.Advertise); !errors.Is(err, errClosed) {
		t.Errorf("a closed transport dials: %v", err)
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

// Sending never waits, whatever has become of the other end; packets that don't fit are
// dropped; and a connection that goes nowhere is given up.
func TestPacketsNeverBlock(t *testing.T) {
	inPond(t, func(t *testing.T, p *pond) {
		p.gather(1, "alpha.test", "beta.test")
		a, b := p.all[0], p.all[1]
		time.Sleep(10 * time.Second)

		before := a.dials(b)

		time.Sleep(5 * time.Minute)

		if before == 0 || a.dials(b) != before {
			t.Errorf("a connection in use didn't last: %d, before %d", a.dials(b), before)
		}

		p.wire.SetCut(func(string, string) bool { return true })
		start := time.Now()

		big := bytes.Repeat([]byte{wireUser}, MaxMessage)
		for range 1000 {
			_, err := a.transport.WriteToAddress(big, memberlist.Address{Name: b.id.String()})
			must(t, err)
		}

		if time.Since(start) != 0 || len(a.transport.contacts[b.id].queue) != queuedEach {
			t.Errorf("1000 packets took %s; %d wait", time.Since(start), len(a.transport.contacts[b.id].queue))
		}

		time.Sleep(2 * callTimeout)
		p.wire.SetCut(nil)
		within(t, time.Minute, "the silent connection is given up", func() bool { return a.dials(b) > before })
		within(t, time.Minute, "both see both again", p.allSee(p.all))
	})
}

// A link ends once the authority of the other end's certificate is replaced: nothing is sent over it
// and nothing taken from it.
//
// Requirement: TRUST-002
func TestALinkEndsWithItsAuthority(t *testing.T) {
	t.Parallel()
	inPond(t, func(t *testing.T, p *pond) {
		p.gather(1, "alpha.test", "beta.test")
		a, b := p.all[0], p.all[1]
		a.publish("x", []byte("before of a"))
		b.publish("y", []byte("before of b"))
		within(t, 10*time.Second, "both hear each other", func() bool {
			return len(b.heard("before of a")) > 0 && len(a.heard("before of b")) > 0
		})

		p.authorities.Replace(t, b.id.TrustDomain())
		a.publish("x", []byte("after of a"))
		b.publish("y", []byte("after of b"))
		time.Sleep(time.Minute)

		if over := append(a.heard("after of b"), b.heard("after of a")...); len(over) > 0 {
			t.Errorf("over the link came %v", over)
		}
	})
}

// A client of the API at gossip's port is refused by a protocol's alert, which it knows another port by.
func TestAClientOfTheAPIIsToldByTheProtocol(t *testing.T) {
	inPond(t, func(t *testing.T, p *pond) {
		a := p.start(pondNode("alpha.test", "n1"), nil, nil)
		b := p.start(pondNode("beta.test", "n1"), nil, nil)

		raw, err := p.wire.DialFrom(b.address)(t.Context(), a.address)
		must(t, err)

		defer raw.Close()

		err = tls.Client(raw, protocolTLS(b.transport.clientTLS, "h2", httpProtocol)).HandshakeContext(t.Context())
		if err == nil || !strings.Contains(err.Error(), "no application protocol") {
			t.Errorf("the handshake ends by %v", err)
		}
	})
}

// One node has a bounded number of streams, and one domain of nodes.
//
// Requirement: MESH-026
func TestConnectionsAreBounded(t *testing.T) {
	inPond(t, func(t *testing.T, p *pond) {
		a := p.start(pondNode("alpha.test", "n1"), nil, nil)
		b := p.start(pondNode("beta.test", "n1"), nil, nil)

		// Bodies that don't come keep their places.
		for range limit.Divide(maxExchanges, nil).ForeignID {
			raw, err := p.wire.DialFrom(b.address)(t.Context(), a.address)
			must(t, err)

			conn := tls.Client(raw, b.transport.clientTLS)
			defer raw.Close()

			_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: a\r\n%s: %s\r\nContent-Length: 9\r\n\r\n",
				pathStream, headerAddress, b.address)
			must(t, err)
		}

		synctest.Wait()

		if err := b.request(a, pathStream, nil); !errors.Is(err, errNotAnswered) || a.count(errTooMany.Error()) != 1 {
			t.Errorf("one stream too many: %v", err)
		}

		time.Sleep(callTimeout)

		if err := b.request(a, pathStream, nil); !errors.Is(err, errNotAnswered) || a.count(errTooMany.Error()) != 1 {
			t.Errorf("places are not given back: %v", err)
		}

		for i := 1; i < maxDomainNodes; i++ {
			_, err := a.transport.meet(pondNode("beta.test", fmt.Sprint("m", i)), b.address)
			must(t, err)
		}

		if _, err := a.transport.meet(pondNode("beta.test", "one-more"), b.address); !errors.Is(err, errTooMany) {
			t.Errorf("one node of a domain too many: %v", err)
		}

		_, err := a.transport.meet(pondNode("gamma.test", "n1"), b.address)
		must(t, err)
		time.Sleep(2 * contactIdle)

		if _, err := a.transport.meet(pondNode("beta.test", "one-more"), b.address); err != nil {
			t.Errorf("idle nodes keep their places: %v", err)
		}
	})
}

// A node that sends too much delays a message of another domain by two of its own at most.
//
// Requirement: MESH-006
func TestAFloodDelaysNoOtherDomain(t *testing.T) {
	inPond(t, func(t *testing.T, p *pond) {
		a := p.start(pondNode("alpha.test", "n1"), nil, nil)
		loud := p.start(pondNode("beta.test", "loud"), nil, nil)
		quiet := p.start(pondNode("gamma.test", "quiet"), nil, nil)
		a.slow = time.Second

		var flood sync.WaitGroup

		each := int(limit.Divide(maxDeliveries, nil).ForeignID)
		for range 3 * each {
			flood.Go(func() { _ = loud.request(a, pathPackets, appendPart(nil, []byte{wireUser, 'x'})) })
		}

		synctest.Wait()

		began := time.Now()
		must(t, quiet.request(a, pathPackets, appendPart(nil, []byte{wireUser, 'y'})))

		if took := time.Since(began); took > 3*a.slow {
			t.Errorf("the message of another domain took %s", took)
		}

		flood.Wait()
		time.Sleep(time.Duration(each) * a.slow)

		if n := len(a.heard("x")); n == 0 || n > each {
			t.Errorf("%d messages of the flood were delivered", n)
		}
	})
}

// joinCompound is the reverse of splitCompound, for 1 to 255 parts.
func joinCompound(parts [][]byte) []byte {
	buf := []byte{wireCompound, byte(len(parts))}
	for _, part := range parts {
		buf = binary.BigEndian.AppendUint16(buf, uint16(len(part)))
	}

	for _, part := range parts {
		buf = append(buf, part...)
	}

	return buf
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
		packet  []byte
		rest    []byte
		message bool
		err     error
	}{
		"a ping":          {packet: ping, rest: ping},
		"with a checksum": {packet: append([]byte{wireChecksum, 1, 2, 3, 4}, ping...), rest: ping},
		"a compound":      {packet: compound(ping, dead), rest: compound(ping, dead)},
		"a message":       {packet: user, message: true},
		"messages at once, which cost little to send": {packet: compound(ping, user, user), err: errWire},
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
		"16 KiB":                     {packet: append([]byte{wireUser}, make([]byte, MaxMessage)...), message: true},
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
		rest, message, err := newPacketFilter().packet(from, bytes.Clone(c.packet))
		if !errors.Is(err, c.err) || !bytes.Equal(rest, c.rest) || (message != nil) != c.message {
			t.Errorf("%s: %x, a message %x, %v", name, rest, message, err)
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
	f.Add(joinCompound([][]byte{message(wireDead, "Incarnation", 1<<31, "Node", "x"), message(wireAck, "SeqNo", 1)}))
	f.Add([]byte("\x08hello"))
	f.Add(append([]byte{wireChecksum, 0, 0, 0, 0}, message(wireAlive, "Incarnation", 1, "Node", from.String())...))
	f.Fuzz(func(t *testing.T, packet []byte) {
		s := newPacketFilter()

		rest, message, err := s.packet(from, packet)
		if len(message) > MaxMessage || message != nil && rest != nil {
			t.Errorf("a message of %d bytes, and %d bytes for memberlist", len(message), len(rest))
		}

		if err != nil || rest == nil {
			return
		}

		kept := bytes.Clone(rest)

		again, none, err := s.packet(from, rest)
		if err != nil || none != nil || !bytes.Equal(again, kept) {
			t.Errorf("%x became %x, a message %x, %v", kept, again, none, err)
		}
	})
}

// The heads of a stream are bounded together, and those that are written can be read.
//
// Requirement: MESH-006
func TestAStreamHoldsAsManyHeadsAsItMay(t *testing.T) {
	head, from := bytes.Repeat([]byte{'h'}, MaxHead), pondNode("alpha.test", "n1")

	var got [][]byte

	tr := &transport{
		cfg:    &Config{Node: from, Panics: contain.New(slog.New(slog.DiscardHandler))},
		filter: *newPacketFilter(),
		turns:  limit.NewFair(limit.FairConfig{Slots: 1, PerParty: 1, Places: limit.SharesConfig{Places: 1, OwnID: 1}}),
		ctx:    t.Context(),
		mesh:   &headsMesh{heads: func() [][]byte { return slices.Repeat([][]byte{head}, maxHeads+1) }, got: &got},
	}
	state := message(wirePushPull, "Nodes", 0, "UserStateLen", 0)

	body := tr.seal(from, state)
	if msg, err := tr.open(from, body); err != nil || !bytes.Equal(msg, state) ||
		len(got) != maxAllHeads/(partHeader+MaxHead) {
		t.Errorf("%d heads, %v", len(got), err)
	}

	// As only a hostile node writes them.
	over := appendPart(body, head)
	if _, err := tr.open(from, over); !errors.Is(err, errTooLarge) {
		t.Errorf("%d bytes of heads: %v", len(over), err)
	}

	head = []byte("h")
	body = tr.seal(from, state)

	if _, err := tr.open(from, body); err != nil || len(got) != maxHeads {
		t.Errorf("%d heads, %v", len(got), err)
	}

	if _, err := tr.open(from, appendPart(body, head)); !errors.Is(err, errTooLarge) {
		t.Errorf("one head too many: %v", err)
	}

	for _, broken := range [][]byte{nil, body[:2], body[:len(body)-1]} {
		if _, err := tr.open(from, broken); !errors.Is(err, errRequest) {
			t.Errorf("%d bytes: %v", len(broken), err)
		}
	}
}

// A headsMesh has heads, and keeps those that it gets.
type headsMesh struct {
	Mesh
	heads func() [][]byte
	got   *[][]byte
}

// Heads implements Mesh.
func (m *headsMesh) Heads(spiffeid.TrustDomain) [][]byte { return m.heads() }

// MergeHeads implements Mesh.
func (m *headsMesh) MergeHeads(_ spiffeid.ID, heads [][]byte) { *m.got = heads }

// A domain of many nodes is read no faster than one of three is, however much each of
// them sends; who sends little isn't kept waiting by them.
//
// Requirement: MESH-026
func TestADomainIsReadAtAPace(t *testing.T) {
	inPond(t, func(t *testing.T, p *pond) {
		a := p.start(pondNode("alpha.test", "n1"), nil, nil)

		const nodes, long = 12, 30 * time.Second

		packet := bytes.Repeat([]byte{0xff}, 16<<10)
		junk := appendPart(nil, packet)

		var (
			flood sync.WaitGroup
			over  atomic.Bool
		)
		for i := range nodes {
			f := p.start(pondNode("gamma.test", fmt.Sprint("n", i)), nil, nil)
			flood.Go(func() {
				for !over.Load() {
					_ = f.request(a, pathPackets, junk)
				}
			})
		}

		honest := p.start(pondNode("beta.test", "n1"), nil, nil)
		time.Sleep(long)

		began := time.Now()
		must(t, honest.request(a, pathPackets, junk))

		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("a node that sends little waited for %s", took)
		}

		read := a.count(errWire.Error())
		over.Store(true)
		flood.Wait()

		most := (domainBurst + domainBytes*int(long/time.Second)) / (paceEach + len(junk))
		if read < most/2 || read > most+2*nodes {
			t.Errorf("%d packets of the flood were read; at most %d may be", read, most)
		}
	})
}

// Streams are read at the pace of links: who has many, and long ones, gains nothing.
//
// Requirement: MESH-026
func TestStreamsAreReadAtAPace(t *testing.T) {
	inPond(t, func(t *testing.T, p *pond) {
		a := p.start(pondNode("alpha.test", "n1"), nil, nil)
		junk := appendPart(nil, append([]byte{wirePushPull}, make([]byte, maxState-1)...))

		const nodes, each = 3, 8
		began := time.Now()

		var flood sync.WaitGroup
		for i := range nodes {
			f := p.start(pondNode("gamma.test", fmt.Sprint("n", i)), nil, nil)
			flood.Go(func() {
				for range each {
					if err := f.request(a, pathStream, junk); !errors.Is(err, errNotAnswered) {
						t.Error(err)
					}
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
	inPond(t, func(t *testing.T, p *pond) {
		victim := p.start(pondNode("alpha.test", "n1"), nil, nil)
		liar := p.start(pondNode("gamma.test", "n1"), nil, nil)

		state := message(wirePushPull, "Nodes", 1, "UserStateLen", 0)
		state = append(state, message(0, "Name", liar.id.String(), "Incarnation", 1, "State", 0, "Vsn",
			[]byte{1, 5})[1:]...)

		if err := liar.request(victim, pathStream, appendPart(nil, state)); !errors.Is(err, errNotAnswered) {
			t.Error(err)
		}

		if members := victim.Members(); len(members) != 1 || members[0].ID != victim.id {
			t.Errorf("members are %v", members)
		}
	})
}
