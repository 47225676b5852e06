package config

import (
	"errors"
	"fmt"
	"net"
	"slices"
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

func (c *Config) validateMembers() error {
	if n := len(c.Members); n != 1 && n != 3 && n != 5 {
		return fmt.Errorf("members: must be 1, 3 or 5, got %d: list the nodes with which the domain begins, "+
			"including this one; with join, this one only", n)
	}

	if err := c.validateJoin(); err != nil {
		return err
	}

	for i, member := range c.Members {
		if !trust.IsNode(member.ID, c.TrustDomain) {
			return fmt.Errorf("members[%d].id: must be under spiffe://%s%s, got %q",
				i, c.TrustDomain.Name(), trust.NodePath, member.ID)
		}

		if err := validateHostPort(fmt.Sprintf("members[%d].cluster", i), member.Cluster); err != nil {
			return err
		}

		isSame := func(other Member) bool { return other.ID == member.ID || other.Cluster == member.Cluster }
		if slices.ContainsFunc(c.Members[:i], isSame) {
			return fmt.Errorf("members[%d]: another member has the same id or address", i)
		}
	}

	return nil
}

// validateJoin checks the keys of a node that joins a domain, or that finds the other
// first nodes by their addresses.
func (c *Config) validateJoin() error {
	for i, address := range c.Join {
		if err := validateHostPort(fmt.Sprintf("join[%d]", i), address); err != nil {
			return err
		}
	}

	joins := len(c.Join) > 0

	switch {
	case len(c.Join) > maxJoin:
		return fmt.Errorf("join: at most %d addresses are allowed, got %d", maxJoin, len(c.Join))
	case joins && len(c.Members) != 1:
		return fmt.Errorf("members: with join, list this node only, got %d members", len(c.Members))
	case c.Expect != 0 && !joins:
		return errors.New("bootstrap_expect: it needs join: the addresses at which the other nodes are found")
	case c.Expect != 0 && c.Expect != 1 && c.Expect != 3 && c.Expect != 5:
		return fmt.Errorf("bootstrap_expect: must be 0, 1, 3 or 5, got %d", c.Expect)
	case !c.Voter && !joins:
		return errors.New("voter: the first node of a domain must vote; a node without a vote needs join")
	case !c.Voter && c.Expect != 0:
		return errors.New("voter: a node without a vote can't begin a domain: remove bootstrap_expect")
	case c.RemoveDead != 0 && c.RemoveDead < minRemoveDead:
		return fmt.Errorf("remove_dead: must be 0s or at least %s, got %s", minRemoveDead, c.RemoveDead)
	}

	return nil
}

func validateHostPort(key, address string) error {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return fmt.Errorf("%s: must be HOST:PORT, got %q", key, address)
	}

	return nil
}
