// Package request is one HTTP request as the handlers of package api's surfaces see it:
// a Call with its verified caller, the parameters of its path and query, its body, and
// its conditions. Nothing in it knows a route or a surface.
//
// # Conditions
//
// A read's If-Match and If-None-Match are compared with the entity tag of the
// representation that this request would get (IfMatch, IfNoneMatch).
//
// A write's are decided by the domain's leader, together with the write (Condition):
// If-Match by the revision in the tag, If-Match: * and If-None-Match: * by whether the
// name is registered. A name that another identity owns is 409 whatever the conditions
// say, because conditions apply to requests that would otherwise succeed (RFC 9110,
// 13.2.1). If-None-Match with tags is 400 on a write: it has no useful meaning there,
// and to ignore it would be wrong.
package request
