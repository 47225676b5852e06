package attacks

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/roster-mesh/roster/node/dev"
	"github.com/roster-mesh/roster/scenarios/launch"
)

// operatorWaits is how long the operator of a domain may wait for an answer.
const operatorWaits = 100 * time.Millisecond

// operatorVariable has the JSON text of an operatorTask. With it, this program is the operator instead of the tests.
const operatorVariable = "ATTACKS_OPERATOR"

// An operatorTask is what the operator's process does: ask for a page again and again.
type operatorTask struct {
	URL       string
	Cert, Key string // files
	For       time.Duration
}

// operatorTakes returns the median and the 99th percentile of the time in which a node answers its operator, who asks
// again and again from a process of its own: in that of an attacker the requests would wait behind the attacker's. It
// calls others meanwhile.
func (m *runningMesh) operatorTakes(n dev.Node, during time.Duration, others ...func()) (p50, p99 time.Duration) {
	m.t.Helper()

	domain := m.Domains[0]

	task := operatorTask{URL: n.API + "/v1/operator/raft", For: during}
	for _, id := range domain.Identities {
		if id.SPIFFEID == "spiffe://"+domain.TrustDomain+"/ops/operator" {
			task.Cert, task.Key = id.Cert, id.Key
		}
	}

	text, err := json.Marshal(task)
	must(m.t, err)

	var output bytes.Buffer

	cmd := exec.CommandContext(m.t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), operatorVariable+"="+string(text))
	cmd.Stdout = &output

	process, err := launch.Start(cmd)
	must(m.t, err)

	for running := true; running; {
		select {
		case <-process.Done():
			running = false
		case <-time.After(20 * time.Millisecond):
			for _, other := range others {
				other()
			}
		}
	}

	must(m.t, process.Wait())

	var took []time.Duration
	must(m.t, json.Unmarshal(output.Bytes(), &took))
	slices.Sort(took)

	return took[len(took)/2], took[len(took)*99/100]
}

// runOperator does the task of the operator's process, and writes how long each request took.
func runOperator(text string) error {
	var task operatorTask
	if err := json.Unmarshal([]byte(text), &task); err != nil {
		return err
	}

	pair, err := tls.LoadX509KeyPair(task.Cert, task.Key)
	if err != nil {
		return err
	}

	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		ForceAttemptHTTP2: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}},
	}}

	var took []time.Duration
	for began := time.Now(); time.Since(began) < task.For; time.Sleep(20 * time.Millisecond) {
		asked := time.Now()

		status, answer, err := ask(context.Background(), client, http.MethodGet, task.URL, nil)
		if err != nil {
			return err
		}

		if status != http.StatusOK {
			return fmt.Errorf("the operator is answered with %d %s", status, answer)
		}

		took = append(took, time.Since(asked))
	}

	return json.NewEncoder(os.Stdout).Encode(took)
}
