package agents

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// exportForms are the kinds that a registration of another kind can be converted to.
var exportForms = map[directory.Kind]func(*conversion) ([]byte, error){
	directory.KindA2A:  (*conversion).a2a,
	directory.KindMCP:  (*conversion).mcp,
	directory.KindOASF: (*conversion).oasf,
	directory.KindWoA:  (*conversion).woa,
}

func exportCommand(session *connect.Session) *cobra.Command {
	var as, origin string
	cmd := &cobra.Command{
		Use:   "export NAME|RID",
		Short: "Print a registration as a document of another catalogue",
		Long: `Print a registration as an A2A agent card, an MCP server.json, an OASF record or a Web of
Agents document (--as), or as the document that its registrant wrote (the default).

If the registration is of that kind already, its document is printed unchanged. Otherwise
the document is converted, and parts that the new form can't express are listed on standard
error, as are members that its schema refuses.`,
		Example: "  roster export hello.a2aregistry.org --as oasf",
		Args:    cli.Args("NAME|RID"),
		RunE: func(c *cobra.Command, args []string) error {
			kind := directory.Kind(as)
			if as != "" && !slices.Contains(directory.KindNames(), as) {
				return cli.Usage("--as must be one of %s, got %q", strings.Join(exportNames(), ", "), as)
			}

			return export(c.Context(), session, args[0], origin, kind)
		},
	}
	cmd.Flags().StringVar(&as, "as", "", "`FORM` of the document: "+strings.Join(exportNames(),
		", ")+" (default: as registered)")
	cmd.Flags().StringVar(&origin, "origin", "", "`DOMAIN` that registered the agent")

	return cmd
}

// exportNames returns the kinds in exportForms.
func exportNames() []string {
	var names []string
	for _, name := range directory.KindNames() {
		if exportForms[directory.Kind(name)] != nil {
			names = append(names, name)
		}
	}

	return names
}

func export(ctx context.Context, session *connect.Session, id, origin string, as directory.Kind) error {
	found, contents, err := connect.Contents(ctx, session, id, origin)
	if err != nil {
		return err
	}

	if contents.Redacted {
		session.Note("Incomplete: some members are withheld from you.")
	}

	document := contents.Document
	if as == "" || as == document.Kind() {
		// The import added the source; the document at the source doesn't have that member.
		return session.PrintDocument(strictjson.AppendObject(nil, without(document.Members(), importedFrom)))
	}

	convert, ok := exportForms[as]
	if !ok {
		return cli.Failed(cli.ExitFailed, "cannot convert a registration of kind %s to %s; must be one of %s",
			document.Kind(), as, strings.Join(exportNames(), ", "))
	}

	projection, err := kinds.Reproject(contents.Agent, document)
	if err != nil {
		return err
	}

	conv := &conversion{
		agent:      contents.Agent,
		projection: projection,
		version:    cmp.Or(projection.Version, strconv.FormatUint(contents.Revision, 10)),
		registered: found.Provenance.RegisteredAt,
	}

	body, err := convert(conv)
	if err != nil {
		return err
	}

	conv.loseUninterpreted(document)

	for _, part := range conv.lost {
		session.Note("Lost: %s", part)
	}

	for _, member := range conv.invalid {
		session.Note("Not valid in that catalogue: %s", member)
	}

	return session.PrintDocument(body)
}

// A conversion writes a registration in another form, from its projection. Members that the
// form requires and the registration lacks are completed as in the directory's own views:
// the description from the name, the version from the revision.
type conversion struct {
	agent      string
	projection *directory.Projection
	version    string // of the document, or else the revision
	registered time.Time
	lost       []string // parts that the form can't express
	invalid    []string // members that the form's schema refuses, with the reason
}

// lose records that the form can't express a part, if the registration has it.
func (c *conversion) lose(has bool, part string) {
	if has && !slices.Contains(c.lost, part) {
		c.lost = append(c.lost, part)
	}
}

// refuse records a member that the form's schema refuses, if it does.
func (c *conversion) refuse(does bool, member string) {
	if does && !slices.Contains(c.invalid, member) {
		c.invalid = append(c.invalid, member)
	}
}

// loseCommon loses the parts that only AD and AIDIP documents have.
func (c *conversion) loseCommon() {
	c.lose(len(c.projection.Constraints) > 0, "constraints")
	c.lose(len(c.projection.Languages) > 0, "supported languages")
	c.lose(c.projection.Status != "active", "status "+c.projection.Status)
}

// loseUninterpreted loses the members of the document that the directory doesn't interpret:
// without them its projection is the same.
func (c *conversion) loseUninterpreted(document directory.Document) {
	var names []string
	for _, member := range document.Members() {
		if member.Name == importedFrom {
			// The import added this member, so that its absence is no loss.
			continue
		}

		// A member without effect on the projection is not interpreted. This needs no list of members for each kind.
		text := strictjson.AppendObject(nil, without(document.Members(), member.Name))

		projection, err := kinds.Reproject(c.agent, directory.LoadDocument(document.Kind(), text))
		if err == nil && reflect.DeepEqual(projection, c.projection) {
			names = append(names, member.Name)
		}
	}

	c.lose(len(names) > 0, "members that the directory does not interpret: "+strings.Join(names, ", "))
}

// bindingsOf returns the bindings of a protocol, up to limit, and loses the other bindings.
// Without any the document would be unreachable, which is an error.
func (c *conversion) bindingsOf(protocol string, limit int) ([]directory.Binding, error) {
	var bindings []directory.Binding
	for _, binding := range c.projection.Bindings {
		if binding.Protocol == protocol && len(bindings) < limit {
			bindings = append(bindings, binding)
		} else {
			c.lose(true, "binding "+binding.Protocol+" at "+binding.Endpoint)
		}
	}

	if len(bindings) == 0 {
		return nil, cli.Failed(cli.ExitFailed, "cannot convert %s: it has no binding of protocol %s", c.agent,
			protocol).
			WithHint("Its protocols are: %s.", strings.Join(c.projection.Protocols, ", "))
	}

	return bindings, nil
}
