package gossip

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// The message types of memberlist's wire format (its net.go) that honest
// members of this mesh use. The others are compression and encryption, which are
// off, labels, and user messages over streams.
const (
	wirePing         = 0
	wireIndirectPing = 1
	wireAck          = 2
	wireSuspect      = 3
	wireAlive        = 4
	wireDead         = 5
	wirePushPull     = 6
	wireCompound     = 7
	wireUser         = 8
	wireNack         = 11
	wireChecksum     = 12
	wireError        = 13
)

// MaxMessage bounds a message, in bytes.
const MaxMessage = 16 << 10

// maxPoolSize bounds the members that one push/pull may list. memberlist would allocate
// memory for a million because of a ten-byte header.
const maxPoolSize = 1024

// wireVersions is the number of protocol versions that memberlist states of a
// node, a byte each: the least, most and current one of its own protocol and of
// the delegate's.
const wireVersions = 6

var (
	errWire    = errors.New("not what a member sends")
	errClaim   = errors.New("claims another node's name")
	errMessage = errors.New("a gossiped message is over 16 KiB")
)

// A packetFilter checks packets and streams before memberlist reads them. memberlist trusts
// all input, unpacks 40 MB from 32 KiB, and drops the sender of a message. The filter
// therefore refuses a packet entirely if no honest member could send it. A ping must name
// its true sender. A message is a packet of its own, and delivered with the authenticated sender. Claims
// about a third node are bounded by the incarnation that this node itself stated.
type packetFilter struct {
	self string // our own name

	mu     sync.Mutex
	stated map[string]int64 // each node's incarnation, last stated by the node itself
}

// maxStated bounds the nodes whose incarnations are stored. incarnationSlack bounds the
// difference between a claimed incarnation and the stored one. Without that bound, a message
// with the highest possible incarnation could never be contradicted, and honest members
// would repeat it for ever.
const (
	maxStated        = 4096
	incarnationSlack = 1024
)

// packet checks a packet from that node. It returns a message of the mesh, or the packet for memberlist. Both
// share buf's memory, which packet may modify.
func (f *packetFilter) packet(from spiffeid.ID, buf []byte) (rest, message []byte, err error) {
	if len(buf) >= 5 && buf[0] == wireChecksum {
		buf = buf[5:] // TLS makes the CRC redundant
	}

	if len(buf) == 0 {
		return nil, nil, errWire
	}

	parts := [][]byte{buf}

	switch buf[0] {
	case wireUser:
		if message = buf[1:]; len(message) > MaxMessage {
			return nil, nil, errMessage
		}

		return nil, message, nil
	case wireCompound:
		if parts, err = splitCompound(buf); err != nil {
			return nil, nil, err
		}
	}

	for _, part := range parts {
		if err := f.part(from, part); err != nil {
			return nil, nil, err
		}
	}

	return buf, nil, nil
}

func (f *packetFilter) part(from spiffeid.ID, part []byte) error {
	if len(part) == 0 {
		return errWire
	}

	switch part[0] {
	case wireAck, wireNack:
		return nil
	case wirePing, wireIndirectPing:
		return checkPing(from, part[1:])
	case wireSuspect, wireAlive, wireDead:
		fields, _, err := wireMap(part[1:])
		if err != nil {
			return err
		}

		return f.claim(from, part[0] == wireAlive, fields["Node"], fields["Incarnation"])
	default:
		return fmt.Errorf("%w: type %d", errWire, part[0])
	}
}

// stream checks the only message of a stream.
func (f *packetFilter) stream(from spiffeid.ID, msg []byte) error {
	if len(msg) == 0 {
		return errWire
	}

	switch msg[0] {
	case wireAck, wireError:
		return nil
	case wirePing:
		return checkPing(from, msg[1:])
	case wirePushPull:
		return f.state(from, msg[1:])
	default:
		return fmt.Errorf("%w: a stream of type %d", errWire, msg[0])
	}
}

// state checks the members that a push/pull lists.
func (f *packetFilter) state(from spiffeid.ID, msg []byte) error {
	header, rest, err := wireMap(msg)
	if err != nil {
		return err
	}

	// Heads follow the push/pull, so the user state of an honest member is empty.
	nodes, ok := header["Nodes"].value.(int64)
	if !ok || nodes < 0 || nodes > maxPoolSize || header["UserStateLen"].value != int64(0) {
		return fmt.Errorf("%w: a push/pull's header", errWire)
	}

	for range nodes {
		var fields map[string]wireValue
		if fields, rest, err = wireMap(rest); err != nil {
			return err
		}

		if err := f.claim(from, true, fields["Name"], fields["Incarnation"]); err != nil {
			return err
		}

		// memberlist 0.6.0 indexes the versions of a listed node without checking their
		// number: a shorter list would end the program (ADR 0001).
		if versions, _ := fields["Vsn"].value.(string); len(versions) != wireVersions {
			return fmt.Errorf("%w: a member with %d versions", errWire, len(versions))
		}
	}

	if len(rest) > 0 {
		return fmt.Errorf("%w: more than a push/pull", errWire)
	}

	return nil
}

// claim bounds the incarnation that a sender claims of a third node, and stores the one that
// it states of itself. Claims about this node pass, because memberlist contradicts them at
// any incarnation.
func (f *packetFilter) claim(from spiffeid.ID, alive bool, node, incarnation wireValue) error {
	name, ok := node.value.(string)

	n, isNumber := incarnation.value.(int64)
	if !ok || !isNumber || n < 0 || n > math.MaxUint32 {
		return fmt.Errorf("%w: a claim about a member", errWire)
	}

	if name == f.self {
		return nil
	}

	f.mu.Lock()
	defer f.mu.Unlock()

	if name != from.String() {
		// The claim is lowered and not refused: honest members pass on claims that they can't check.
		if most := f.stated[name] + incarnationSlack; n > most {
			incarnation.lower(most)
		}

		return nil
	}

	if alive {
		for other := range f.stated {
			if len(f.stated) < maxStated {
				break
			}

			// Claims about a forgotten node are bounded by the slack alone, until it states its incarnation
			// again.
			delete(f.stated, other)
		}

		f.stated[name] = n
	}

	return nil
}

// checkPing refuses a ping whose source is not its sender. The ping must also name its
// target, because memberlist could not forward it otherwise.
func checkPing(from spiffeid.ID, ping []byte) error {
	fields, _, err := wireMap(ping)
	if err != nil {
		return err
	}

	if fields["SourceNode"].value != from.String() {
		return errClaim
	}

	if node, _ := fields["Node"].value.(string); node == "" {
		return errWire
	}

	return nil
}

// splitCompound returns the parts of a compound message: type, count, a two-byte
// length for each part, the parts.
func splitCompound(buf []byte) ([][]byte, error) {
	if len(buf) < 2 || len(buf) < 2+2*int(buf[1]) {
		return nil, errWire
	}

	lengths, rest := buf[2:2+2*int(buf[1])], buf[2+2*int(buf[1]):]

	parts := make([][]byte, 0, buf[1])
	for ; len(lengths) > 0; lengths = lengths[2:] {
		n := int(binary.BigEndian.Uint16(lengths))
		if n > len(rest) {
			return nil, errWire
		}

		parts = append(parts, rest[:n:n])
		rest = rest[n:]
	}

	return parts, nil
}

// A wireValue is a value and the bytes that it was read from.
type wireValue struct {
	value any // string, int64, bool or nil
	raw   []byte
}

// lower overwrites the number from which v was read with a smaller one. It leaves numbers of
// one byte alone, because they are below every bound.
func (v wireValue) lower(n int64) {
	for i := len(v.raw) - 1; i > 0; i-- {
		v.raw[i] = byte(n)
		n >>= 8
	}
}

// wireMap reads the MessagePack map at the beginning of data. Its values are strings,
// integers, booleans or nil. Everything else is refused, duplicate names too: an honest
// member's encoder produces nothing else. A more lenient decoder could read other values
// than memberlist's decoder.
func wireMap(data []byte) (fields map[string]wireValue, rest []byte, err error) {
	if len(data) == 0 || data[0]&0xf0 != 0x80 {
		return nil, nil, fmt.Errorf("%w: no map", errWire)
	}

	n, data := int(data[0]&0x0f), data[1:]

	fields = make(map[string]wireValue, n)
	for range n {
		var key, value any
		if key, data, err = wireScalar(data); err != nil {
			return nil, nil, err
		}

		name, ok := key.(string)
		if _, twice := fields[name]; !ok || twice {
			return nil, nil, fmt.Errorf("%w: a map's names", errWire)
		}

		if value, rest, err = wireScalar(data); err != nil {
			return nil, nil, err
		}

		fields[name] = wireValue{value, data[:len(data)-len(rest)]}
		data = rest
	}

	return fields, data, nil
}

// wireScalar reads one MessagePack value that is neither an array nor a map.
func wireScalar(data []byte) (value any, rest []byte, err error) {
	if len(data) == 0 {
		return nil, nil, errWire
	}

	c, data := data[0], data[1:]
	switch {
	case c <= 0x7f || c >= 0xe0:
		return int64(int8(c)), data, nil
	case c >= 0xa0 && c <= 0xbf:
		return wireText(data, int(c&0x1f))
	case c == 0xc0:
		return nil, data, nil
	case c == 0xc2 || c == 0xc3:
		return c == 0xc3, data, nil
	case c >= 0xcc && c <= 0xd3: // uint 8 16 32 64, int 8 16 32 64
		size := 1 << ((c - 0xcc) & 3)
		if len(data) < size {
			return nil, nil, errWire
		}

		return wireNumber(data[:size], c >= 0xd0), data[size:], nil
	case c == 0xc4 || c == 0xd9: // bin 8, str 8
		if len(data) < 1 {
			return nil, nil, errWire
		}

		return wireText(data[1:], int(data[0]))
	case c == 0xc5 || c == 0xda: // bin 16, str 16
		if len(data) < 2 {
			return nil, nil, errWire
		}

		return wireText(data[2:], int(binary.BigEndian.Uint16(data)))
	default:
		return nil, nil, fmt.Errorf("%w: a value that holds others", errWire)
	}
}

func wireText(data []byte, n int) (any, []byte, error) {
	if n > len(data) {
		return nil, nil, errWire
	}

	return string(data[:n]), data[n:], nil
}

// wireNumber reads a big-endian integer of 1, 2, 4 or 8 bytes. An unsigned integer beyond
// int64 becomes negative, which every caller refuses.
func wireNumber(data []byte, signed bool) int64 {
	var u uint64
	for _, c := range data {
		u = u<<8 | uint64(c)
	}

	if unused := 64 - 8*len(data); signed {
		return int64(u<<unused) >> unused
	}

	return int64(u)
}
