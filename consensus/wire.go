package consensus

import (
	"github.com/fxamacker/cbor/v2"
	"github.com/roster-mesh/roster/consensus/state"
)

// A wireMessage is what members send each other besides Raft's own messages:
// requests and answers, each with a method onWire. They grow by members: a reader
// ignores those that it doesn't know, and a sender relies on one only from the wire
// version on that has it (federation.md, "Formats over time"). What goes into the
// log is read by decodeBatch alone, which ignores nothing.
type wireMessage interface{ onWire() }

func (*request) onWire()        {}
func (*message) onWire()        {}
func (*answers) onWire()        {}
func (*presenceWord) onWire()   {}
func (*presenceAnswer) onWire() {}
func (*readWord) onWire()       {}
func (*termWord) onWire()       {}
func (*termAnswer) onWire()     {}
func (*vouchWord) onWire()      {}
func (*vouchAnswer) onWire()    {}
func (*asideWord) onWire()      {}
func (*contactsWord) onWire()   {}
func (*contactsAnswer) onWire() {}
func (*joinWord) onWire()       {}
func (*joinAnswer) onWire()     {}
func (*restoreAnswer) onWire()  {}

// lenient reads messages: as decoding does, but members that it doesn't know are
// passed over.
var lenient, _ = cbor.DecOptions{
	DupMapKey:       cbor.DupMapKeyEnforcedAPF,
	IndefLength:     cbor.IndefLengthForbidden,
	TagsMd:          cbor.TagsForbidden,
	TextUnmarshaler: cbor.TextUnmarshalerTextString,
}.DecMode()

func readMessage(data []byte, into wireMessage) error { return lenient.Unmarshal(data, into) }

// writeMessage encodes a message to a member, or its answer.
func (s *Store) writeMessage(m wireMessage) ([]byte, error) {
	data, err := state.Marshal(m)
	if err == nil && s.cfg.sent != nil {
		data = s.cfg.sent(data)
	}

	return data, err
}
