package ledger

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// A Start is the contents of the first entry of an epoch's log (federation.md, "Bytes").
type Start struct {
	Domain   spiffeid.TrustDomain
	Epoch    uint64
	Former   uint64         // the epoch before; 0 for the first one
	Size     uint64         // of the log of the epoch before
	Root     directory.Hash // of the log of the epoch before
	Restored uint64         // the revision that was restored; 0 for the first epoch
	Reason   string
}

// Bootstrap is the reason of a domain's first epoch.
const Bootstrap = "bootstrap"

// FirstStart returns the start of a domain's first epoch.
func FirstStart(domain spiffeid.TrustDomain, epoch uint64) Start {
	return Start{Domain: domain, Epoch: epoch, Root: (&Frontier{}).Root(), Reason: Bootstrap}
}

// Payload is {v, iss, epoch, old, size, root, rev, reason}.
func (s *Start) Payload() []byte {
	old := ""
	if s.Former != 0 {
		old = directory.LogName(s.Domain, s.Former)
	}

	data := strictjson.AppendUint([]byte{'{'}, "v", 1)
	data = strictjson.AppendText(data, "iss", s.Domain.IDString())
	data = strictjson.AppendUint(data, "epoch", s.Epoch)
	data = strictjson.AppendText(data, "old", old)
	data = strictjson.AppendUint(data, "size", s.Size)
	data = strictjson.AppendText(data, "root", s.Root.String())
	data = strictjson.AppendUint(data, "rev", s.Restored)

	return append(strictjson.AppendText(data, "reason", s.Reason), '}')
}

// MaxStart bounds the payload of a start, in bytes.
const MaxStart = 8 << 10

// ParseStart reads a payload whose hash an entry has.
func ParseStart(payload []byte) (*Start, error) {
	var read struct {
		Issuer string         `json:"iss"`
		Epoch  uint64         `json:"epoch"`
		Old    string         `json:"old"`
		Size   uint64         `json:"size"`
		Root   directory.Hash `json:"root"`
		Rev    uint64         `json:"rev"`
		Reason string         `json:"reason"`
	}

	err := json.Unmarshal(payload, &read)
	s := Start{Epoch: read.Epoch, Size: read.Size, Root: read.Root, Restored: read.Rev, Reason: read.Reason}

	if err == nil {
		s.Domain, err = spiffeid.TrustDomainFromString(read.Issuer)
	}

	if number, former := strings.CutPrefix(read.Old, s.Domain.Name()+"/roster/"); err == nil && former {
		s.Former, err = strconv.ParseUint(number, 10, 64)
	}

	// Former epochs are followed back to the first one, so each must lie before the next.
	if err == nil && (read.Old == "") != (s.Former == 0) || s.Former >= s.Epoch {
		err = errors.New("it names no former epoch")
	}

	if err != nil {
		return nil, fmt.Errorf("the start of an epoch: %w", err)
	}

	return &s, nil
}
