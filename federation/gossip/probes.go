package gossip

import (
	"encoding/binary"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// maxProbes bounds the stored pings.
const maxProbes = 4096

// probes stores the pings whose answers memberlist waits for. A goroutine of memberlist waits
// for each until the probe's interval ends, even during shutdown; only an ack ends the wait.
// The transport therefore supplies an ack for each at shutdown.
type probes struct {
	longest time.Duration // that memberlist waits for an answer

	mu   sync.Mutex
	sent map[uint32]time.Time // by sequence number
}

// note stores the ping with which a packet to another node begins, if any.
func (p *probes) note(packet []byte) {
	if len(packet) >= 5 && packet[0] == wireChecksum {
		packet = packet[5:]
	}

	if len(packet) > 0 && packet[0] == wireCompound {
		if parts, err := splitCompound(packet); err == nil && len(parts) > 0 {
			packet = parts[0]
		}
	}

	if len(packet) == 0 || packet[0] != wirePing {
		return
	}

	fields, _, err := wireMap(packet[1:])
	if err != nil {
		return
	}

	seq, _ := fields["SeqNo"].value.(int64)
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()

	if len(p.sent) >= maxProbes {
		p.prune(now)
	}

	if len(p.sent) < maxProbes {
		p.sent[uint32(seq)] = now
	}
}

// prune removes pings whose wait has ended. p.mu is held.
func (p *probes) prune(now time.Time) {
	for seq, at := range p.sent {
		if now.Sub(at) > p.longest {
			delete(p.sent, seq)
		}
	}
}

// acks returns packets that answer every stored ping. There is at least one packet.
func (p *probes) acks() []*memberlist.Packet {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.prune(now)

	parts := [][]byte{ackOf(0)} // no ping has that number
	for seq := range p.sent {
		parts = append(parts, ackOf(seq))
	}

	clear(p.sent)

	var packets []*memberlist.Packet
	for ; len(parts) > 0; parts = parts[min(len(parts), 255):] {
		buf := joinCompound(parts[:min(len(parts), 255)])
		packets = append(packets, &memberlist.Packet{Buf: buf, From: nodeAddr{}, Timestamp: now})
	}

	return packets
}

// ackOf is memberlist's ackResp: the map {"SeqNo": seq}.
func ackOf(seq uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte{wireAck, 0x81, 0xa5, 'S', 'e', 'q', 'N', 'o', 0xce}, seq)
}
