//go:build cluster

package redistest

// OnCluster says that the tests are to run on a Redis Cluster, and on nothing
// else: on one Redis they run without the tag.
const OnCluster = true
