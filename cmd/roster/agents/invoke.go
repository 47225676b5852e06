package agents

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	apiagents "github.com/roster-mesh/roster/api/agents"
	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/api/client/contract"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/strictjson"
)

func invokeCommand(session *connect.Session) *cobra.Command {
	var in invocation
	cmd := &cobra.Command{
		Use:   "invoke NAME|RID INPUT",
		Short: "Invoke an agent through the gateway",
		Long: `Invoke an agent through the directory's gateway and print its output. INPUT is text, a JSON
object or array, @FILE with either, or - for standard input. With --json it is any JSON
value, and with --text it is text even if it looks like JSON. A JSON array is a batch.

  A2A         text, or {"text": "..."}, is the text part of a message; another object is its
              data part; an object with the member message has the parameters of the method
  MCP         text is the tool's one string argument; an object has its arguments by name
  HTTPS, WoA  text is the one string member of the operation's input schema; an object is
              the input. Without a schema, text is sent as a JSON string

If the schema has no such string or several required members, give an object.

The command validates the input against the schema of the operation in the registration
before it sends anything, and the output before it prints it. The gateway validates both
again; with --no-validate only the gateway does.

The gateway calls the agent with its own identity, so the agent never gets your
credentials. Trust the output as much as you trust the agent.`,
		Example: "  roster invoke translator hello\n" +
			"  roster invoke translator '{\"text\": \"hello\", \"to\": \"de\"}'\n" +
			"  roster invoke translator --operation detect @input.json",
		Args: cli.Args("NAME|RID", "INPUT"),
		RunE: func(c *cobra.Command, args []string) error {
			in.id = args[0]

			if err := in.read(session, args[1]); err != nil {
				return err
			}

			return in.run(c.Context(), session)
		},
	}
	cmd.Flags().StringVar(&in.operation, "operation", "", "`OPERATION` to invoke (required if the agent has several)")
	cmd.Flags().BoolVar(&in.unvalidated, "no-validate", false,
		"don't check input and output against the agent's schema")
	cmd.Flags().BoolVar(&in.isJSON, "json", false, "INPUT is a JSON value")
	cmd.Flags().BoolVar(&in.isText, "text", false, "INPUT is text")

	return cmd
}

// An invocation is one call of an agent.
type invocation struct {
	id          string // name or rid
	operation   string // empty for the agent's only one
	input       []byte
	unvalidated bool // leave validation to the gateway
	isJSON      bool // the input is JSON, whatever it looks like
	isText      bool // the input is text
}

// read sets the input, as JSON.
func (in *invocation) read(session *connect.Session, argument string) (err error) {
	if in.isJSON && in.isText {
		return cli.Usage("give --json or --text, not both")
	}

	in.input = []byte(argument)
	if file, isFile := strings.CutPrefix(argument, "@"); isFile || argument == "-" {
		if in.input, err = session.ReadFile(file, apiagents.DefaultMaxInvocation+1); err != nil {
			return err
		}

		// Editors end the last line of a file; that end is no part of the input.
		in.input = bytes.TrimRight(in.input, "\r\n")
	}

	trimmed := bytes.TrimSpace(in.input)

	// Only an object or an array is taken for JSON. A number or a word is text unless --json says otherwise.
	looksJSON := len(trimmed) > 0 && (trimmed[0] == '{' || trimmed[0] == '[')

	switch {
	case len(trimmed) == 0:
		return cli.Usage("INPUT is empty")
	case in.isText, !in.isJSON && !looksJSON:
		// A JSON string can't carry other bytes unchanged.
		if !utf8.Valid(in.input) {
			return cli.Failed(cli.ExitFailed, "INPUT is not UTF-8 text")
		}

		in.input = strictjson.AppendString(nil, string(in.input))
	case !jsontext.Value(trimmed).IsValid():
		return cli.Failed(cli.ExitFailed, "INPUT is not valid JSON").
			WithHint("Correct it, or add --text to send it as text.")
	}

	return nil
}

func (in *invocation) run(ctx context.Context, session *connect.Session) error {
	client, err := session.Client()
	if err != nil {
		return err
	}

	reply, err := in.send(ctx, client)

	var (
		invalidOutput *contract.OutputError
		invalidInput  *directory.Error
	)
	switch {
	case errors.As(err, &invalidOutput):
		return cli.Failed(cli.ExitFailed, "%w", invalidOutput).
			WithHint("The agent has acted. Add --no-validate to print its output.")
	case errors.As(err, &invalidInput):
		return cli.FailureOf(err).WithHint("Nothing was sent. Add --no-validate to send it to the gateway anyway.")
	case err != nil && in.operation == "":
		return in.explainMissing(ctx, session, client, err)
	case err != nil: // the agent or its operation may be missing
		return cli.Suggest(err, cli.ExitNotFound, session.CommandLine("get", in.id))
	}

	// A stream that fails has outputs before the failure, and they are printed, too.
	outputs, failed := reply.Outputs()
	if err := printOutputs(session, outputs); err != nil {
		return err
	}

	return failed
}

// printOutputs prints an agent's output. Those of a stream are lines, or with -o a list.
func printOutputs(session *connect.Session, outputs [][]byte) error {
	if session.Format.IsTable() {
		return session.PrintDocument(bytes.Join(outputs, []byte{'\n'}))
	}

	for n, output := range outputs {
		if !jsontext.Value(output).IsValid() {
			outputs[n] = strictjson.AppendString(nil, string(output))
		}
	}

	if len(outputs) == 1 {
		return session.PrintDocument(outputs[0])
	}

	list := append(append([]byte(`{"outputs":[`), bytes.Join(outputs, []byte{','})...), "]}\n"...)

	return session.Print(cli.Answer{Body: list, Items: "outputs"})
}

// explainMissing distinguishes an agent that does not exist from a node whose gateway is off.
func (in *invocation) explainMissing(
	ctx context.Context, session *connect.Session, client *apiclient.Client, err error,
) error {
	if errors.Is(err, apiclient.ErrNotFound) {
		if _, missing := client.Get(ctx, in.id); missing == nil {
			const reason = "%s exists, but this node invokes no agents: its gateway is off"

			return cli.Failed(cli.ExitNotFound, reason, in.id).
				WithHint("Set gateway.enabled in the configuration of the node, and restart it.")
		}
	}

	return connect.SuggestLookup(ctx, session, err, in.id)
}

func (in *invocation) send(ctx context.Context, client *apiclient.Client) (*apiclient.Reply, error) {
	if in.unvalidated {
		return client.Invoke(ctx, in.id, in.operation, in.input, apiclient.InvokeOptions{})
	}

	return contract.Invoke(ctx, client, contract.Invocation{ID: in.id, Operation: in.operation, Input: in.input},
		apiclient.InvokeOptions{})
}
