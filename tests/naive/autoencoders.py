"""Mult-VAE and RecVAE for one user at a time in plain NumPy, written from the papers."""

import math

import numpy as np


def layer(network, name, x):
    W, b = network[f"{name}.weight"], network[f"{name}.bias"]
    return np.array([sum(W[k, j] * x[j] for j in range(len(x))) + b[k] for k in range(len(b))])


def unit(x):
    length = math.sqrt(sum(v * v for v in x))
    return x / length if length else x


def log_likelihood(logits, x):
    """log of the multinomial, without its constant: sum of x_j log p_j."""
    total = sum(math.exp(v) for v in logits)
    return sum(x[j] * (logits[j] - math.log(total)) for j in range(len(x)))


def mult_vae(network, x, draw):
    """(last hidden layer at the mean, minus log likelihood at mu + draw * std, KL to the standard normal)."""
    hidden = np.tanh(layer(network, "encoder", unit(x)))
    both = layer(network, "latent", hidden)
    d = len(both) // 2
    mu, logvar = both[:d], both[d:]
    at_mean = np.tanh(layer(network, "middle", mu))
    z = mu + draw * np.exp(logvar / 2)
    logits = layer(network, "decoder", np.tanh(layer(network, "middle", z)))
    kl = sum(0.5 * (mu[k] ** 2 + math.exp(logvar[k]) - 1 - logvar[k]) for k in range(d))
    return at_mean, -log_likelihood(logits, x), kl


def layer_norm(x, scale, offset, epsilon=0.1):
    mean = sum(x) / len(x)
    variance = sum((v - mean) ** 2 for v in x) / len(x)
    return (x - mean) / math.sqrt(variance + epsilon) * scale + offset


def rec_vae_encoder(network, x, which=""):
    def block(k, previous, added):
        raw = layer(network, f"{which}layer{k}", previous) + added
        swish = raw / (1 + np.exp(-raw))
        return layer_norm(swish, network[f"{which}norm{k}.weight"], network[f"{which}norm{k}.bias"])

    h1 = block(0, unit(x), 0.0)
    h2 = block(1, h1, h1)
    h3 = block(2, h2, h1 + h2)
    h4 = block(3, h3, h1 + h2 + h3)
    h5 = block(4, h4, h1 + h2 + h3 + h4)
    return layer(network, f"{which}mu", h5), layer(network, f"{which}logvar", h5)


def density(z, mu, variance):
    return math.exp(-((z - mu) ** 2) / (2 * variance)) / math.sqrt(2 * math.pi * variance)


def rec_vae(network, x, draw, gamma):
    """(mu, minus log likelihood, weighted KL) with z = mu + draw * std."""
    mu, logvar = rec_vae_encoder(network, x)
    old_mu, old_logvar = rec_vae_encoder(network, x, "old.")
    z = mu + draw * np.exp(logvar / 2)
    kl = 0.0
    for k in range(len(z)):
        mixture = (
            3 / 20 * density(z[k], 0.0, 1.0)
            + 3 / 4 * density(z[k], old_mu[k], math.exp(old_logvar[k]))
            + 1 / 10 * density(z[k], 0.0, math.exp(10.0))
        )
        kl += math.log(density(z[k], mu[k], math.exp(logvar[k]))) - math.log(mixture)
    return mu, -log_likelihood(layer(network, "decoder", z), x), gamma * sum(x) * kl
