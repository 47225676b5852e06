package consensus

import (
	"context"

	"github.com/roster-mesh/roster/directory"
)

// An asideWord is a question to the leader, and its answer.
type asideWord struct {
	Text []byte `cbor:"1,keyasint"`
}

// AskLeader asks the leader what it knows beside the log: what its Config.Aside
// answers. Question and answer have at most 512 KiB. Where there is no other member
// that leads and answers, it is Unavailable.
func (s *Store) AskLeader(ctx context.Context, question []byte) ([]byte, error) {
	leader, ok := s.leader()
	if !ok || leader.ID == s.cfg.Node {
		return nil, directory.Refuse(directory.Unavailable, "no other member leads")
	}
	var answer asideWord
	if err := s.post(ctx, leader, asidePath, &asideWord{question}, &answer); err != nil {
		return nil, directory.Refuse(directory.Unavailable, "the leader does not answer: %w", err)
	}
	return answer.Text, nil
}
