package node

import (
	"context"
	"fmt"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/gateway"
	"github.com/roster-mesh/roster/gateway/crawl"
)

// Crawling is which origins' Web of Agents documents a domain follows, and as
// whom it registers what they list. Without origins nothing is crawled.
type Crawling struct {
	As      string   `yaml:"as"`
	Origins []string `yaml:"origins"`
	Allow   []string `yaml:"allow"`
	CA      string   `yaml:"ca"`
}

// maxOrigins bounds how many origins one domain crawls.
const maxOrigins = 256

func (c *Config) validateCrawl() error {
	if len(c.Crawl.Origins) == 0 {
		return nil
	}
	if _, err := directory.ParseIdentity(c.Crawl.As); err != nil {
		return fmt.Errorf("crawl.as: %q is no identity: say as whom what is found is registered", c.Crawl.As)
	}
	if n := len(c.Crawl.Origins); n > maxOrigins {
		return fmt.Errorf("crawl.origins: %d are given; at most %d are followed", n, maxOrigins)
	}
	hosts := map[string]bool{}
	for i, text := range c.Crawl.Origins {
		at, err := crawl.ParseOrigin(text)
		switch {
		case err != nil:
			return fmt.Errorf("crawl.origins[%d]: %w", i, err)
		case hosts[at.Host]:
			return fmt.Errorf("crawl.origins[%d]: another document of %s is given: agents are named after the host", i, at.Host)
		}
		hosts[at.Host] = true
	}
	_, err := parseRanges("crawl.allow", c.Crawl.Allow)
	return err
}

// wireCrawl starts to follow the configured origins.
func (n *Node) wireCrawl() error {
	if len(n.cfg.Crawl.Origins) == 0 {
		return nil
	}

	id, err := directory.ParseIdentity(n.cfg.Crawl.As)
	if err != nil {
		return fmt.Errorf("crawl.as: %w", err)
	}

	cfg, err := guardConfig("crawl", n.cfg.Crawl.Allow, n.cfg.Crawl.CA)
	if err != nil {
		return err
	}

	guard := gateway.NewGuard(cfg)
	n.life.onStop("crawl", func(context.Context) error { guard.Close(); return nil })

	for _, text := range n.cfg.Crawl.Origins {
		origin, err := crawl.ParseOrigin(text)
		if err != nil {
			return fmt.Errorf("crawl.origins: %w", err)
		}

		follower := &crawl.Follower{
			Origin:   origin,
			As:       id,
			Guard:    guard,
			Registry: n.face.Registry(),
			Policy:   n.policy,
			Index:    n.view.Own(),
			IsLeader: n.store.IsLeader,
			Contain:  n.containAnswer,
			Logger:   n.log,
		}
		n.life.loop("crawl of "+origin.Host, follower.Run)
	}

	return nil
}

// containAnswer runs a function that reads the answer of an agent's server.
func (n *Node) containAnswer(f func()) { n.panics.Do(contain.Answer, f) }
