package config

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/trust"
)

const (
	maxJoin       = 64
	minRemoveDead = 10 * time.Minute // a node may take that long to restart
)

// A Member is one node of the domain.
type Member struct {
	ID      spiffeid.ID `yaml:"id"`
	Cluster string      `yaml:"cluster"`
	API     string      `yaml:"api"`
}

// Member returns the member with an ID; nil if no member has it.
func (c *Config) Member(id spiffeid.ID) *Member {
	for i := range c.Members {
		if c.Members[i].ID == id {
			return &c.Members[i]
		}
	}

	return nil
}

func (c *Config) validateMembers(r *report) {
	n := len(c.Members)
	r.require(n == 1 || n == 3 || n == 5, "members", "must be 1, 3 or 5, got %d: list the nodes with which the domain "+
		"begins, including this one; with join, this one only", n)

	c.validateJoin(r)

	seen := map[string]string{} // the key of each ID and address

	for i, member := range c.Members {
		at := fmt.Sprintf("members[%d].", i)
		r.require(c.TrustDomain.IsZero() || trust.IsNode(member.ID, c.TrustDomain), at+"id",
			"must be under spiffe://%s%s, got %q", c.TrustDomain.Name(), trust.NodePath, member.ID)
		r.hostPort(at+"cluster", member.Cluster)
		r.require(member.API == "" || isBaseURL(member.API), at+"api",
			"must be https://HOST[:PORT], got %q", member.API)

		for _, each := range []struct{ key, value string }{
			{at + "id", member.ID.String()},
			{at + "cluster", member.Cluster},
			{at + "api", member.API},
		} {
			if before, taken := seen[each.value]; taken && each.value != "" {
				r.addf(each.key, "%s is also %s: each member has its own", each.value, before)
			}

			seen[each.value] = each.key
		}
	}
}

// validateJoin checks the keys of a node that joins a domain, or that finds the other
// first nodes by their addresses.
func (c *Config) validateJoin(r *report) {
	for i, address := range c.Join {
		r.hostPort(fmt.Sprintf("join[%d]", i), address)
	}

	joins := len(c.Join) > 0

	r.require(len(c.Join) <= maxJoin, "join", "at most %d addresses are allowed, got %d", maxJoin, len(c.Join))
	r.require(!joins || len(c.Members) <= 1, "members", "with join, list this node only, got %d members",
		len(c.Members))
	r.require(c.Expect == 0 || joins, "bootstrap_expect", "it needs join: the addresses at which the other nodes are "+
		"found")
	r.require(slices.Contains([]int{0, 1, 3, 5}, c.Expect), "bootstrap_expect",
		"must be 0, 1, 3 or 5, got %d", c.Expect)
	r.require(c.Voter || joins, "voter", "the first node of a domain must vote; a node without a vote needs join")
	r.require(c.Voter || c.Expect == 0, "voter",
		"a node without a vote can't begin a domain: remove bootstrap_expect")
	r.require(c.RemoveDead == 0 || c.RemoveDead >= minRemoveDead, "remove_dead", "must be 0s or at least %s, got %s",
		minRemoveDead, c.RemoveDead)
}

// hostPort checks an address that others connect to.
func (r *report) hostPort(key, address string) {
	host, port, err := net.SplitHostPort(address)
	r.require(err == nil && host != "", key, "must be HOST:PORT, got %q", address)
	r.require(port != "0" && isPort(port), key, "the port must be from 1 to 65535, got %q", address)
}

// isPortOrNone reports whether a text is the port of a URL: a number over 0, or nothing.
func isPortOrNone(text string) bool {
	number, err := strconv.ParseUint(cmp.Or(text, "443"), 10, 16)
	return err == nil && number > 0
}

// isPort reports whether a text is the number of a port.
func isPort(text string) bool {
	_, err := strconv.ParseUint(text, 10, 16)
	return err == nil
}
