package directory

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A SignedPage is the payload of a page: a run of a stream's digests (rule G1).
// It claims that every entry of the stream whose latest announced change, as of
// revision At, lies in (From, To] is listed.
type SignedPage struct {
	Issuer       spiffeid.TrustDomain
	Epoch        uint64
	Audience     Audience
	From, To, At uint64
	IssuedAt     int64 // Unix seconds
	Digests      []Digest
}

// Payload returns the one encoding of p.
func (p *SignedPage) Payload() []byte {
	b := AppendUint([]byte{'{'}, "v", 1)
	b = AppendText(b, "iss", p.Issuer.IDString())
	b = AppendUint(b, "epoch", p.Epoch)
	b = AppendText(b, "aud", p.Audience.String())
	b = AppendUint(b, "from", p.From)
	b = AppendUint(b, "to", p.To)
	b = AppendUint(b, "at", p.At)
	b = strconv.AppendInt(appendField(b, "iat"), p.IssuedAt, 10)
	return append(AppendDigests(appendField(b, "d"), p.Digests), '}')
}

var (
	errPage = errors.New("not a canonical page")
	errHead = errors.New("not a canonical head")
)

// ParsePage reads a page's payload and refuses any bytes but the ones that
// Payload makes, ranges that are none, and digests out of order or range.
func ParsePage(payload []byte) (*SignedPage, error) {
	var w struct {
		Iss   string   `json:"iss"`
		Epoch uint64   `json:"epoch"`
		Aud   Audience `json:"aud"`
		From  uint64   `json:"from"`
		To    uint64   `json:"to"`
		At    uint64   `json:"at"`
		Iat   int64    `json:"iat"`
		D     []Digest `json:"d"`
	}
	if err := decode(payload, &w); err != nil {
		return nil, fmt.Errorf("%w: %w", errPage, err)
	}
	iss, err := spiffeid.TrustDomainFromString(w.Iss)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errPage, err)
	}
	p := &SignedPage{iss, w.Epoch, w.Aud, w.From, w.To, w.At, w.Iat, w.D}
	if !bytes.Equal(p.Payload(), payload) {
		return nil, errPage
	}
	if p.From >= p.To || p.To > p.At {
		return nil, fmt.Errorf("%w: its range is none", errPage)
	}
	last := p.From
	for _, d := range p.Digests {
		if d.Revision <= last || d.Revision > p.To {
			return nil, fmt.Errorf("%w: a digest is out of its range or order", errPage)
		}
		last = d.Revision
	}
	return p, nil
}

// A Head is the payload of a signed word on where an origin is (rule G5).
type Head struct {
	Issuer   spiffeid.TrustDomain
	Epoch    uint64
	Tip      uint64 // the highest revision ever announced in the mesh stream
	At       uint64 // the revision applied
	Size     uint64 // of the ledger, as Root
	Root     Hash
	Keys     Hash  // of the key document's payload
	IssuedAt int64 // Unix seconds
}

// Payload returns the one encoding of h.
func (h *Head) Payload() []byte {
	b := AppendUint([]byte{'{'}, "v", 1)
	b = AppendText(b, "iss", h.Issuer.IDString())
	b = AppendUint(b, "epoch", h.Epoch)
	b = AppendUint(b, "tip", h.Tip)
	b = AppendUint(b, "at", h.At)
	b = AppendUint(b, "size", h.Size)
	b = AppendText(b, "root", h.Root.String())
	b = AppendText(b, "keys", h.Keys.String())
	return append(strconv.AppendInt(appendField(b, "iat"), h.IssuedAt, 10), '}')
}

// ParseHead reads a head's payload and refuses any bytes but the ones that
// Payload makes.
func ParseHead(payload []byte) (*Head, error) {
	var w struct {
		Iss   string `json:"iss"`
		Epoch uint64 `json:"epoch"`
		Tip   uint64 `json:"tip"`
		At    uint64 `json:"at"`
		Size  uint64 `json:"size"`
		Root  Hash   `json:"root"`
		Keys  Hash   `json:"keys"`
		Iat   int64  `json:"iat"`
	}
	if err := decode(payload, &w); err != nil {
		return nil, fmt.Errorf("%w: %w", errHead, err)
	}
	iss, err := spiffeid.TrustDomainFromString(w.Iss)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errHead, err)
	}
	h := &Head{iss, w.Epoch, w.Tip, w.At, w.Size, w.Root, w.Keys, w.Iat}
	if !bytes.Equal(h.Payload(), payload) || h.Tip > h.At {
		return nil, errHead
	}
	return h, nil
}
