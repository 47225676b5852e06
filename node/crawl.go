package node

import (
	"context"
	"fmt"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/contain"
	"github.com/roster-mesh/roster/gateway"
	"github.com/roster-mesh/roster/gateway/crawl"
)

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
