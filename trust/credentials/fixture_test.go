package credentials

import (
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory/directorytest"
)

var alpha = spiffeid.RequireTrustDomainFromString("alpha.test")

var must = directorytest.Must
