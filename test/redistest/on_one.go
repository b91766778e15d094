//go:build !cluster

package redistest

// OnCluster says that the tests are to run on a Redis Cluster: with the build tag
// of that name.
const OnCluster = false
