package attacks

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"
)

// A peer's agents have hostile output schemas, and answer with what costs most to judge by
// them (finding 3).
//
// Requirement: SEC-005
func TestHostileOutputsOfAPeerCostOthersLittle(t *testing.T) {
	m := startMesh(t, "--domains", "2")
	answers := map[string]string{}
	server := m.agentServer(1, "agent/ada", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)

		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answers[r.URL.Path])
	})

	var attacks []attack

	for i, hostile := range hostileJudgements()[:2] {
		name := fmt.Sprintf("hostile-%d", i)
		answers["/"+name] = hostile.value
		m.registerAgent(1, "agent/ada", name, server.URL+"/"+name, `"output_schema":`+hostile.schema)
		attacks = append(attacks, attack{hostile.name, "/agents/" + name + "/invoke", []byte(`{}`)})
	}

	reader := m.as(0, "agent/eve")
	eventually(t, time.Minute, "the agents are known in the other domain", func() error {
		for _, of := range attacks {
			status, answer, err := ask(t.Context(), reader, http.MethodPost, m.Domains[0].Nodes[0].API+of.path, of.body)
			if err == nil && status == http.StatusNotFound {
				err = errors.New(string(answer))
			}

			if err != nil {
				return err
			}
		}

		return nil
	})

	m.withstands(attacks)
}
