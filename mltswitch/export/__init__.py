"""A plan for sites that deploy with tools of their own, and for networks of vendors' own images."""

from mltswitch.export.ansible import Export, ansible_files
from mltswitch.export.images import HOST_IMAGE, IMAGES, Image, choose_images
from mltswitch.export.labs import containerlab_files, netlab_files
from mltswitch.export.network import LabNetwork, lab_network

__all__ = [
    "HOST_IMAGE",
    "IMAGES",
    "Export",
    "Image",
    "LabNetwork",
    "ansible_files",
    "choose_images",
    "containerlab_files",
    "lab_network",
    "netlab_files",
]
