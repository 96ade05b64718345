// Package embedding maps rows of numbers to points of the plane: principal components and t-SNE. Both are
// deterministic.
package embedding
