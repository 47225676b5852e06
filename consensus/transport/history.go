package transport

import (
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"strings"
)

// A History is the random name of a domain's history. It is drawn when the domain begins, and stays
// with the disks of its members. The zero value is no history: that of a node that no domain has let
// in yet.
type History [8]byte

// NewHistory draws a name.
func NewHistory() (name History) {
	_, _ = rand.Read(name[:]) // never fails

	return name
}

// String returns the name in hexadecimal.
func (h History) String() string { return hex.EncodeToString(h[:]) }

// IsZero reports whether it is no history.
func (h History) IsZero() bool { return h == History{} }

// HistoryOf returns the history with these bytes; the zero value if they are none.
func HistoryOf(data []byte) (name History) {
	if len(data) == len(name) {
		copy(name[:], data)
	}

	return name
}

// A Claim is a node's word on its history in a handshake.
type Claim struct {
	History History
	Voter   bool
}

// The name of a history goes with a handshake, among the ALPN names that its client offers. No server
// chooses that one.
const (
	historyProtocol = "roster-history/1:"
	votingHistory   = ":voter"
)

// offers returns the protocols that a client with that claim offers.
func (c Claim) offers(proto string) []string {
	if c.History.IsZero() {
		return []string{proto}
	}

	name := historyProtocol + c.History.String()
	if c.Voter {
		name += votingHistory
	}

	return []string{proto, name}
}

// claimOf returns the claim that a client made with its offers.
func claimOf(offered []string) (claim Claim) {
	for _, one := range offered {
		name, is := strings.CutPrefix(one, historyProtocol)
		if !is {
			continue
		}

		name, claim.Voter = strings.CutSuffix(name, votingHistory)

		data, err := hex.DecodeString(name)
		if err == nil {
			claim.History = HistoryOf(data)
		}
	}

	return claim
}

// recordingClaims returns config with the claim of each client noted at its tracked connection.
func recordingClaims(config *tls.Config) *tls.Config {
	config = config.Clone()

	get := config.GetConfigForClient
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if t, is := hello.Conn.(*tracked); is {
			t.cluster.noteClaim(t, claimOf(hello.SupportedProtos))
		}

		if get == nil {
			return nil, nil
		}

		return get(hello)
	}

	return config
}
