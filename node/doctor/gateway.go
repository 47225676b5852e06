package doctor

import (
	"context"
	"time"

	"github.com/spiffe/go-spiffe/v2/svid/x509svid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/trust"
)

// gateway checks the identity with which the node calls agents, if it does.
func (d *diagnosis) gateway(context.Context) {
	const check = "gateway identity"

	if !d.cfg.Gateway.Enabled && !d.cfg.Probe.Enabled {
		return
	}

	files := d.cfg.Gateway.Identity
	do := "renew " + files.Cert + ", and check the program that renews it"

	if files.Cert != "" {
		own, err := x509svid.Load(files.Cert, files.Key)
		if err != nil {
			d.say(check, StatusFailed, do, "%v", err)
			return
		}

		d.gatewaySVID = own
	}

	if d.gatewaySVID == nil {
		d.say(check, StatusWarning, "give this process an SVID under "+d.cfg.TrustDomain.IDString()+
			directory.GatewayPath+", by the Workload API or gateway.identity",
			"missing: agents see no client certificate, and those that require one can't be called")

		return
	}

	id, end := d.gatewaySVID.ID, d.gatewaySVID.Certificates[0].NotAfter
	switch err := trust.CheckSVID(d.gatewaySVID.Certificates, d.bundles); {
	case !trust.IsGateway(id) || !id.MemberOf(d.cfg.TrustDomain):
		d.say(check, StatusFailed, "use an SVID under "+d.cfg.TrustDomain.IDString()+directory.GatewayPath,
			"%s is not a gateway's identity", id)
	case err != nil:
		d.say(check, StatusFailed, do, "the SVID of %s is not valid: %v", id, err)
	default:
		d.say(check, JudgeSVID(end.Sub(d.now)), do, "%s, until %s", id, end.UTC().Format(time.RFC3339))
	}
}
